"""What a URL says, and what nobody is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streamgp.errors import UsageError
from streamgp_data.messages import is_feed, open_feed
from tests.live.feeds import Memory, row, take
from tests.words import naming


def test_a_source_is_named_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address, _ = open_feed("redis://ann:s%23cret@h:1/2?stream=m&group=g&ca=f", "t")
    assert (address.name, address.user, address.password) == ("redis://h:1/2?stream=m", "ann", "s#cret")
    assert "cret" not in repr(address) + address.plain(f"WRONGPASS {address.password}")
    (tmp_path / "secret").write_text("from-file\n")
    monkeypatch.setenv("STREAMGP_SOURCE_PASSWORD_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("STREAMGP_SOURCE_USER", "bob")
    address, _ = open_feed("mqtts://h/plant/+/#", "t")
    assert (address.name, address.user, address.password, address.tls) == (
        "mqtts://h/plant/+/#",
        "bob",
        "from-file",
        True,
    )
    assert address.member != open_feed("mqtts://h/plant/+/#", "u")[0].member


@pytest.mark.parametrize(
    "url",
    ["mqtt://h/", "mqtt:///t", "redis://h/0", "redis://h/zero?stream=a", "kafka://h:port/t", "mqtt://h/t?group=g",
     "redis://h/0?stream=a&claim=soon", "nats://h/t?colour=red"],
)  # fmt: skip
def test_what_a_url_lacks_is_said(url: str) -> None:
    with pytest.raises(UsageError):
        open_feed(url, "t")
    assert is_feed(url) and not is_feed("elsewhere://h/t") and not is_feed("mqtt.csv")


@pytest.mark.parametrize(
    ("url", "module"),
    [("mqtt://h/t", "paho.mqtt.client"), ("redis://h/0?stream=a", "redis"), ("nats://h/t", "nats"),
     ("kafka://h/t", "confluent_kafka")],
)  # fmt: skip
def test_a_client_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as found:
        open_feed(url, "t")
    assert f"streamgp[{url.split(':')[0]}]" in found.value.hint


@pytest.mark.parametrize("flag", [{"sort": True}, {"melt": ("a",)}, {"format": "parquet"}, {"format": "avro"}])
def test_flags_that_no_message_has_are_refused(tmp_path: Path, flag: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=naming(f"--{next(iter(flag))}")):
        take(tmp_path / "t", Memory([row(0)]), **flag)
