from hypothesis import settings
import tests.unit.test_turning as t
for f in (t.test_places_of_returned_records, t.test_there_and_back_and_there_again):
    f._hypothesis_internal_use_settings = settings(max_examples=8000, deadline=None)
    f()
    print(f.__name__, 'ok', flush=True)
