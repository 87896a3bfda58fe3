"""Tokens of OAUTHBEARER: where they come from, how long one is used, and what an error shows of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.model.errors import NotAuthenticated, ReplicationError, Stalled, TlsFailed, Unreachable
from kafka_replication.wire.oidc import Token, TokenEndpoint, Tokens, from_callback
from kafka_replication.wire.tls import Unsupported
from tests.support.tls import Authority
from tests.support.token_endpoint import SECRET, Endpoint, Issuer, token_endpoint

ISSUER = Issuer()
HIDDEN = "do-not-show-me"
LATE = 4e9  # seconds since the epoch, in 2096


def token(seconds: float = 600, value: str = "t") -> Token:
    return Token(value=value, expires=time.time() + seconds)


@pytest.fixture(scope="module")
def serving() -> Iterator[Endpoint]:
    with token_endpoint(lambda: {"access_token": ISSUER.token(100)}) as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(serving: Endpoint) -> Endpoint:
    serving.failures.clear()
    serving.bodies.clear()
    return serving


class Clock:
    """The time, moved by ``later`` seconds. A token of `token` is fresh for 480 s, and ends after 600 s."""

    later = 0.0

    def __call__(self) -> float:
        return time.time() + self.later


def test_one_token_serves_all_until_it_is_no_longer_fresh() -> None:
    fetched, clock = list[Token](), Clock()

    def fetch(_: float) -> Token:
        time.sleep(0.05)
        fetched.append(Token(value="t", expires=clock() + 600))
        return fetched[-1]

    tokens = Tokens(fetch, "a test", clock)
    with ThreadPoolExecutor(8) as threads:
        assert {id(one) for one in threads.map(lambda _: tokens.current(5), range(8))} == {id(fetched[0])}
    assert len(fetched) == 1
    clock.later = 500
    assert tokens.current(5) is fetched[1]
    tokens.forget(fetched[0])
    assert tokens.current(5) is fetched[1]
    tokens.forget(fetched[1])
    assert tokens.current(5) is fetched[2]


def test_the_old_token_is_used_while_there_is_no_new_one(caplog: pytest.LogCaptureFixture) -> None:
    answers, clock = [token()], Clock()

    def fetch(_: float) -> Token:
        if answers:
            return answers.pop()
        raise Unreachable("the provider is away")

    tokens = Tokens(fetch, "a test", clock)
    first = tokens.current(5)
    clock.later = 500
    assert tokens.current(5) is first
    assert "the provider is away" in caplog.text and "token before is used" in caplog.text
    clock.later = 601
    with pytest.raises(Unreachable):
        tokens.current(5)


def test_a_function_that_hangs_is_waited_for_so_long_and_called_again() -> None:
    hanging, calls = threading.Event(), list[float]()

    def fetch(seconds: float) -> Token:
        calls.append(seconds)
        if len(calls) == 1:
            hanging.wait(10)
        return token()

    tokens = Tokens(fetch, "oauth_cb")
    with pytest.raises(Stalled, match="oauth_cb gave no token within 0 s"):
        tokens.current(0.05)
    assert tokens.current(5).value == "t"
    hanging.set()


@pytest.mark.parametrize(
    "returned",
    [("t", LATE), ("t", int(LATE), "me", {"cluster": "lkc-1"}), ["t", LATE, "me"]],
)
def test_what_a_callback_may_return(returned: Any) -> None:
    asked = list[object]()

    def callback(argument: object) -> Any:
        asked.append(argument)
        return returned

    made = from_callback(callback, "config", ())(5)
    assert (made.value, asked) == ("t", ["config"])
    assert made.extensions == ((("cluster", "lkc-1"),) if len(returned) == 4 else ())


@pytest.mark.parametrize(
    "returned",
    [
        HIDDEN,
        (60.0, HIDDEN),
        (HIDDEN, "60"),
        (HIDDEN, 60.0),
        (HIDDEN + "\1", LATE),
        ("", LATE),
        (HIDDEN, LATE, "me", {"auth": HIDDEN}),
        (HIDDEN, LATE, "me", {"cluster": HIDDEN + "\1"}),
        None,
    ],
    ids=range(9),
)
def test_what_a_callback_returns_is_never_shown(returned: Any) -> None:
    with pytest.raises(NotAuthenticated, match="what oauth_cb returned is of no use") as error:
        from_callback(lambda _: returned, None, ())(5)
    assert HIDDEN not in shown(error.value)


def test_a_callback_that_fails_says_why_without_the_secrets_of_the_connection() -> None:
    def failing(argument: str) -> Any:
        raise OSError(f"no route to the provider with {argument}")

    with pytest.raises(Unreachable, match=r"OSError: no route to the provider with \*\*\*") as error:
        from_callback(failing, HIDDEN, [HIDDEN, ""])(5)
    assert HIDDEN not in shown(error.value)


def shown(error: BaseException) -> str:
    """All that a log could show."""
    causes = [error, *filter(None, [error.__cause__, None if error.__suppress_context__ else error.__context__])]
    return " ".join(f"{cause} {cause!r}" for cause in causes)


@pytest.mark.parametrize("named", ["client.id", "client.credentials.client.id"])
def test_credentials_are_exchanged_for_a_token(endpoint: Endpoint, named: str) -> None:
    settings = endpoint.settings(scope="read write", extensions="logicalCluster=lkc-1, identityPoolId=p")
    settings[f"sasl.oauthbearer.{named}"] = settings.pop("sasl.oauthbearer.client.id")
    made = TokenEndpoint(settings).fetch(5)
    assert made.value.count(".") == 2 and 90 < made.expires - time.time() < 101
    assert made.extensions == (("logicalCluster", "lkc-1"), ("identityPoolId", "p"))
    assert endpoint.bodies == ["grant_type=client_credentials&scope=read write"]  # as librdkafka sends it


def test_a_token_that_only_the_provider_can_read() -> None:
    with token_endpoint(lambda: {"access_token": "opaque", "expires_in": 60}) as endpoint:
        made = TokenEndpoint(endpoint.settings()).fetch(5)
    assert made.value == "opaque" and 50 < made.expires - time.time() < 61


def test_a_provider_that_is_overloaded_is_asked_again(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    endpoint.failures += [(503, {}), (429, "not a document")]
    with caplog.at_level(logging.DEBUG):
        assert TokenEndpoint(endpoint.settings()).fetch(5).value
    assert len(endpoint.bodies) == 3
    assert "status 503" in caplog.text and SECRET not in caplog.text


@pytest.mark.parametrize(
    ("failure", "kind", "words", "remedy"),
    [
        ((400, {"error": "invalid_scope"}), NotAuthenticated, "status 400, invalid_scope", "scope"),
        (
            (401, {"error": "x", "error_description": f"not {SECRET}"}),
            NotAuthenticated,
            r"x: not \*\*\*",
            "client.secret",
        ),
        ((302, {}), NotAuthenticated, "status 302", "redirects to"),
        ((200, {"error": "none"}), NotAuthenticated, "it does not say when the token ends", "log"),
        ((200, {"expires_in": 60}), NotAuthenticated, "it has no token", "log"),
        ((200, {"access_token": HIDDEN, "expires_in": -1}), NotAuthenticated, "has expired", "log"),
        ((200, [HIDDEN]), NotAuthenticated, "of no use", "log"),
    ],
)
def test_what_a_provider_refuses(
    endpoint: Endpoint, failure: tuple[int, Any], kind: type[ReplicationError], words: str, remedy: str
) -> None:
    endpoint.failures.append(failure)
    with pytest.raises(kind, match=words) as error:
        TokenEndpoint(endpoint.settings()).fetch(5)
    assert endpoint.address in error.value.what and remedy in error.value.remedy
    assert SECRET not in shown(error.value) and HIDDEN not in shown(error.value)
    assert len(endpoint.bodies) == 1, "a refusal is not repeated, and the secret follows no redirection"


def test_a_provider_that_repeats_what_it_was_asked(endpoint: Endpoint) -> None:
    """In the form that it had on the wire."""
    with pytest.raises(NotAuthenticated, match=r"status 401, invalid_client: not Basic \*\*\*") as error:
        TokenEndpoint(endpoint.settings(**{"client.id": "nobody"})).fetch(5)
    assert "nobody" in error.value.what


def test_a_provider_that_is_away_is_waited_for_so_long() -> None:
    with token_endpoint(dict) as endpoint:
        pass
    began = time.monotonic()
    with pytest.raises(Unreachable, match="does not answer") as error:
        TokenEndpoint(endpoint.settings()).fetch(1.0)
    assert time.monotonic() - began < 2 and SECRET not in shown(error.value)


def test_the_certificate_of_a_provider_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    with token_endpoint(lambda: {"access_token": ISSUER.token()}, authority.issue("provider")) as endpoint:
        for trust in ({"https.ca.location": str(authority.file)}, {"https.ca.pem": authority.file.read_text()}):
            assert TokenEndpoint({**endpoint.settings(), **trust}).fetch(5).value
        with pytest.raises(TlsFailed, match="certificate") as error:
            TokenEndpoint(endpoint.settings()).fetch(5)
    assert "https.ca.location" in error.value.remedy


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "grant.type to urn:.*oauth_cb"),
        ({"metadata.authentication.type": "azure_imds"}, "azure_imds.*oauth_cb"),
        ({"client.secret": ""}, "no sasl.oauthbearer.client.secret"),
        ({"token.endpoint.url": "file:///etc/passwd"}, "no address of HTTP"),
        ({"token.endpoint.url": f"https://me:{HIDDEN}@idp.example/token"}, "without a user in it"),
        ({"token.endpoint.url": ""}, "no sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_settings_that_lead_to_no_token(more: dict[str, str], words: str) -> None:
    settings: Callable[..., dict[str, Any]] = Endpoint("http://127.0.0.1:1/token", dict).settings
    with pytest.raises(Unsupported, match=words) as error:
        TokenEndpoint(settings(**more))
    assert HIDDEN not in shown(error.value)


def test_the_query_of_an_address_is_not_shown() -> None:
    address = f"http://127.0.0.1:1/to ken?key={HIDDEN}"
    with pytest.raises(Unreachable, match="/to ken does not answer") as error:
        TokenEndpoint(Endpoint(address, dict).settings()).fetch(0.5)
    assert HIDDEN not in shown(error.value)
