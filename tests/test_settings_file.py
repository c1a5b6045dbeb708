"""Every mistake in a configuration file gets one line that names the file, the key, the value and what was expected."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.link import LinkEstimate
from shared.endpoints import endpoint_fault
from shared.errors import SettingsError
from shared.settings import (
    AgentGroup,
    Batching,
    CloudLimits,
    CloudSettings,
    EdgeSettings,
    Link,
    NodeAddress,
    Process,
    Scheduling,
)
from shared.settings_check import NOT_YET_KEYS, check, decode
from shared.settings_file import load_cloud, load_edge


def refusal(tmp_path: Path, text: str, name: str = "edge.toml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_edge(path) if name == "edge.toml" else load_cloud(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_an_empty_file_means_every_default(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert load_edge(path) == EdgeSettings()
    assert load_cloud(path) == CloudSettings()


def test_written_values_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "edge.toml"
    path.write_text(
        '[link]\nrtt_ms = 5\nreturn_pause_ms = [1, 2.5]\n[[nodes]]\nname = "a"\nendpoint = "tcp://10.0.0.1:7711"\n'
    )
    settings = load_edge(path)
    assert settings.link == Link(rtt_ms=5.0, return_pause_ms=(1.0, 2.5))
    assert settings.nodes == (NodeAddress(name="a", endpoint="tcp://10.0.0.1:7711"),)


def test_relative_models_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "edge.toml").write_text('[agent]\nmodels = ["../faces.plan", "/srv/eyes.plan"]\n')
    (tmp_path / "conf" / "cloud.toml").write_text('[node]\nmodels = ["faces.plan"]\n')
    monkeypatch.chdir(tmp_path)
    models = load_edge(Path("conf/edge.toml")).agent.models
    assert [Path(model).resolve() for model in models] == [tmp_path / "faces.plan", Path("/srv/eyes.plan")]
    assert all(Path(model).is_absolute() for model in models)
    assert load_cloud(Path("conf/cloud.toml")).node.models == (str(tmp_path / "conf" / "faces.plan"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[batching]\nmax_bach_size = 3", "batching.max_bach_size: unknown key; did you mean 'max_batch_size'?"),
        ("[bathcing]\n", "bathcing: unknown key; did you mean 'batching'?"),
        ("[[nodes]]\nname = 'a'\nendpont = 'x'", "nodes[0].endpont: unknown key; did you mean 'endpoint'?"),
        (
            "[insurance]\nqqq = 1",
            "insurance.qqq: unknown key; known here: mode, warm_ms, guard_ms, hold_ms, hold_max_ms",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_its_path_and_the_nearest_name(tmp_path: Path, text: str, expected: str) -> None:
    assert refusal(tmp_path, text) == expected


@pytest.mark.parametrize("key", sorted(NOT_YET_KEYS))
def test_a_key_whose_part_is_not_built_is_refused_as_not_yet(tmp_path: Path, key: str) -> None:
    group, _, name = key.partition(".")
    text = f"[{group}]\n{name or 'anything'} = 1\n"
    assert refusal(tmp_path, text).startswith(f"{key}: not yet: ")
    assert refusal(tmp_path, text, "cloud.toml").startswith(f"{key}: not yet: ")


def test_the_keys_that_work_are_not_listed_as_not_yet() -> None:
    for kind in (EdgeSettings, CloudSettings):
        for group in msgspec.structs.fields(kind):
            assert group.name not in NOT_YET_KEYS
            if isinstance(group.type, type) and issubclass(group.type, msgspec.Struct):
                assert not {f"{group.name}.{field.name}" for field in msgspec.structs.fields(group.type)} & NOT_YET_KEYS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[link]\nrtt_ms = '2ms'", "link.rtt_ms: is '2ms'; expected float"),
        ("[batching]\nmax_batch_size = 1.5", "batching.max_batch_size: is 1.5; expected int"),
        ("[batching]\nmax_batch_size = true", "batching.max_batch_size: is True; expected int"),
        ("link = 3", "link: is 3; expected a table"),
        ("nodes = 3", "nodes: is 3; expected array"),
        ("nodes = ['a']", "nodes[0]: is 'a'; expected a table"),
        ("[link]\nreturn_pause_ms = [1]", "link.return_pause_ms: is [1]; expected array of length 2"),
        ("[[nodes]]\nname = 'a'", "nodes[0].endpoint: missing"),
        ("balance = 'round_robin'", "balance: is 'round_robin'; expected one of 'least_predicted_finish'"),
        (
            "[batching]\nbatch_strategy = 'x'",
            "batching.batch_strategy: is 'x'; expected one of 'adaptive', 'fixed', 'size_or_delay', 'step'",
        ),
    ],
)
def test_a_wrong_type_is_refused_with_path_value_and_what_was_expected(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert refusal(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[batching]\nmax_batch_size = 0", "batching.max_batch_size: is 0; expected int >= 1"),
        ("[batching]\nmax_batch_size = 4097", "batching.max_batch_size: is 4097; expected int <= 4096"),
        ("[execution]\nslowdown = 0.5", "execution.slowdown: is 0.5; expected float >= 1.0"),
        ("[execution]\nslowdown = inf", "execution.slowdown: is inf; expected float <= 1000.0"),
        ("[link]\nrtt_ms = nan", "link.rtt_ms: is nan; expected float >= 0.0"),
        ("[link]\nrate_mbit = 0.0", "link.rate_mbit: is 0.0; expected float >= 0.001"),
        ("[link]\nreturn_pause_ms = [3, -1]", "link.return_pause_ms[1]: is -1; expected float >= 0.0"),
        (
            "[batching]\nbatch_strategy = 'fixed'",
            "batching.batch_strategy: is 'fixed'; expected 'adaptive': the others are for nodes",
        ),
        ("[outliers]\nslower = 0.5", "outliers.slower: is 0.5; expected 0 or at least 1"),
        ("[process]\nslice_us = 50", "process.slice_us: is 50.0; expected 0 or at least 100"),
        (
            '[[nodes]]\nname = "a"\nendpoint = "tcp://10.0.0.1:7711"\nsource = "::1"',
            "nodes[0].source: is '::1'; expected an address of the endpoint's kind, IPv4",
        ),
        (
            '[[nodes]]\nname = "a"\nendpoint = "tcp://10.0.0.1:7711"\nsource = "10.0.2"',
            "nodes[0].source: is '10.0.2'; expected an address of this host or the name of an interface",
        ),
        ("[link]\nreturn_pause_ms = [3, 1]", "link.return_pause_ms: is [3.0, 1.0]; expected the lower end first"),
        ("[insurance]\nhold_ms = 5", "insurance.hold_max_ms: is 1.0; expected at least hold_ms, 5.0"),
        ("[agent]\nname = ''", "agent.name: is ''; expected str of length >= 1"),
    ],
)
def test_a_value_out_of_range_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert refusal(tmp_path, text) == expected


def test_a_standby_agent_may_have_no_nodes(tmp_path: Path) -> None:
    node = "[[nodes]]\nname = 'a'\nendpoint = 'tcp://h:1'\n"
    expected = "nodes: has 1; expected none beside agent.standby = true"
    assert refusal(tmp_path, f"[agent]\nstandby = true\n{node}") == expected


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("name = 'a'\nendpoint = 'tcp://h:2'", "nodes.name: 'a' is there twice; expected each once"),
        ("name = 'b'\nendpoint = 'tcp://h:1'", "nodes.endpoint: 'tcp://h:1' is there twice; expected each once"),
    ],
)
def test_nodes_that_cannot_be_told_apart_are_refused(tmp_path: Path, second: str, expected: str) -> None:
    assert refusal(tmp_path, f"[[nodes]]\nname = 'a'\nendpoint = 'tcp://h:1'\n[[nodes]]\n{second}\n") == expected


def test_a_model_named_twice_is_refused(tmp_path: Path) -> None:
    assert "agent.models: 'a.plan' is there twice" in refusal(tmp_path, "[agent]\nmodels = ['a.plan', 'a.plan']")
    assert "node.models: 'a.plan' is there twice" in refusal(
        tmp_path, "[node]\nmodels = ['a.plan', 'a.plan']", "cloud.toml"
    )


@pytest.mark.parametrize(
    "endpoint", ["ipc:///run/headtail/edge", "tcp://10.0.0.1:7711", "tcp://garage.local:1", "tcp://[::1]:65535"]
)
def test_endpoints_that_work_are_taken(endpoint: str) -> None:
    assert endpoint_fault(endpoint, binds=False) is None


@pytest.mark.parametrize(
    "endpoint",
    [
        *(
            "",
            "garage:7711",
            "udp://h:1",
            "inproc://x",
            "tcp://h",
            "tcp://:1",
            "tcp://h:",
            "tcp://h:0",
            "tcp://h:65536",
        ),
        *("tcp://h:x", "tcp://h:1/x", "ipc://", "ipc://edge", "ipc:///", "ipc:///run/", "ipc:///" + "x" * 107),
    ],
)
def test_other_endpoints_are_refused(tmp_path: Path, endpoint: str) -> None:
    assert endpoint_fault(endpoint, binds=True) is not None
    if endpoint:
        assert f"agent.endpoint: is '{endpoint}'; expected " in refusal(tmp_path, f"[agent]\nendpoint = '{endpoint}'")
        assert f"node.endpoint: is '{endpoint}'; expected " in refusal(
            tmp_path, f"[node]\nendpoint = '{endpoint}'", "cloud.toml"
        )


def test_every_address_is_for_one_that_listens(tmp_path: Path) -> None:
    assert endpoint_fault("tcp://*:7711", binds=True) is None
    text = "[[nodes]]\nname = 'a'\nendpoint = 'tcp://*:7711'"
    assert refusal(tmp_path, text).startswith(
        "nodes[0].endpoint: is 'tcp://*:7711'; expected the host and port to connect to"
    )


@pytest.mark.parametrize(
    ("text", "line"), [("[link]\nrtt_ms = = 2\n", 2), ("a = 1\na = 2\n", 2), ("x = 1\ny =", 2), ("[link\n", 1)]
)
def test_bad_toml_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith("not valid TOML: ")
    assert f"at line {line}, " in message


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere.toml: no such file$"):
        load_edge(tmp_path / "nowhere.toml")
    with pytest.raises(SettingsError, match=r": cannot be read: Is a directory$"):
        load_edge(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"name = \xff")
    with pytest.raises(SettingsError, match=r"bytes.toml: not UTF-8 text at byte 7, expected TOML$"):
        load_edge(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("text", "words"), [("x = " + "[" * 5_000, "not valid TOML"), ("x = " + "9" * 5_000, "too long")]
)
def test_toml_that_the_reader_chokes_on_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="no path of a file"):
        load_edge(Path(path))


def test_settings_built_in_code_meet_the_same_rules() -> None:
    check(EdgeSettings())
    check(CloudSettings())
    with pytest.raises(SettingsError, match=r"^batching.max_batch_size: is 0; expected int >= 1$"):
        check(EdgeSettings(batching=Batching(max_batch_size=0)))
    with pytest.raises(SettingsError, match=r"^agent.endpoint: is 'x'"):
        check(EdgeSettings(agent=AgentGroup(endpoint="x")))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            EdgeSettings(agent=AgentGroup(models=(Path("a.plan"),))),
            "agent.models[0]: is PosixPath('a.plan'); expected str",
        ),
        (EdgeSettings(agent=AgentGroup(name="\ud800")), "agent.name: is '\\ud800'; expected text in Unicode"),
        (EdgeSettings(agent=AgentGroup(models=("\ud800",))), "agent.models[0]: is '\\ud800'; expected text in Unicode"),
        (
            EdgeSettings(scheduling=Scheduling(priority_levels=10**5000)),
            "scheduling.priority_levels: is a value of type int that cannot be shown; expected int <= 16",
        ),
        (EdgeSettings(process=Process(lock_memory=np.True_)), "process.lock_memory: is np.True_; expected bool"),
        (EdgeSettings(link=5), "link: is 5; expected a table"),
        (EdgeSettings(limits=CloudLimits()), "limits.max_peers: unknown key; did you mean 'max_open'?"),
        (EdgeSettings(link={5: 5}), "link.5: unknown key; known here: "),
    ],
)
def test_what_code_may_put_into_settings_is_refused_by_its_key(settings: EdgeSettings, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check(settings)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[journal]\nfolder = "\\u0000x"', "journal.folder"),
        ('[agent]\nname = "a\\u0000"', "agent.name"),
        ('[agent]\nmodels = ["a.plan", "a\\u0000b.plan"]', "agent.models[1]"),
        ('[agent]\nendpoint = "ipc:///a\\u0000b"', "agent.endpoint"),
        ('[execution]\nprovider = "CPU\\u0000"', "execution.provider"),
        ("[[nodes]]\nname = \"\\u0000\"\nendpoint = 'tcp://h:1'", "nodes[0].name"),
    ],
)
def test_text_with_a_nul_which_nothing_below_takes_is_refused_by_its_key(tmp_path: Path, text: str, key: str) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith(f"{key}: is ")
    assert message.endswith("; expected text without a NUL")


def test_settings_built_in_code_become_those_that_a_file_would_give() -> None:
    odd = EdgeSettings(
        agent=AgentGroup(name=np.str_("car"), models=["a.plan"]),
        nodes=[{"name": "a", "endpoint": "tcp://h:1"}],
        link=Link(rtt_ms=np.float64(3), rate_mbit=50),
    )
    plain = EdgeSettings(
        agent=AgentGroup(name="car", models=("a.plan",)),
        nodes=(NodeAddress(name="a", endpoint="tcp://h:1"),),
        link=Link(rtt_ms=3.0, rate_mbit=50.0),
    )
    assert check(odd) == plain
    assert type(check(odd).agent.name) is str
    assert type(check(odd).link.rtt_ms) is type(check(odd).link.rate_mbit) is float


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["agent", "nodes", "link", "name", "endpoint", "rtt_ms", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["agent", "nodes", "link", "limits", "balance", "odd"]), json_like, max_size=4))
def test_whatever_the_tree_holds_it_is_taken_or_refused_in_words(tree: dict[str, object]) -> None:
    try:
        settings = decode(tree, EdgeSettings)
    except SettingsError:
        return
    check(settings)


@given(st.floats(min_value=0.0, max_value=1e6), st.floats(min_value=0.0, max_value=60_000.0))
def test_whatever_link_is_taken_its_largest_message_takes_a_time_that_can_be_reckoned_with(
    rate: float, rtt: float
) -> None:
    try:
        link = decode({"link": {"rate_mbit": rate, "rtt_ms": rtt}}, EdgeSettings).link
    except SettingsError:
        assert rate < 0.001
        return
    assert 0 <= LinkEstimate(link).network_ns(2047 << 20) < 1 << 62
