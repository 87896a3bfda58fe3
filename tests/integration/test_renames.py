"""Topics that get other names on the target by expressions, on real brokers."""

from __future__ import annotations

from tests.support.scenario import Scenario, numbered


def test_expressions_give_new_names_and_two_topics_with_one_name_are_refused_alone(scene: Scenario) -> None:
    names = [f"{scene.name}.{part}" for part in ("old.orders", "a1", "a2")]
    for name in names:
        scene.source.create(name)
        scene.source.produce(name, numbered(5))
    rename = {rf"^({scene.name})[.]old[.]": r"\1.new.", rf"^{scene.name}[.]a.*": f"{scene.name}.a"}
    report = scene.run(topics={"include": [f"^{scene.name}[.].*"], "rename": rename})
    assert report.outcome == "failed"
    errors = {line.topic: line.error for line in report.ranges}
    assert errors.pop(names[0]) is None and errors.keys() == {*names[1:]}
    assert all("would be written to" in str(error) for error in errors.values()), errors
    assert scene.target.size(f"{scene.name}.new.orders") == 5 + 1, "the records and a marker"
    assert scene.target.partitions(f"{scene.name}.a") == 0
