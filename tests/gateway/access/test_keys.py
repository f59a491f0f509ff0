"""API keys: stored as hashes, one refusal for every fault, changes take effect at once."""

import json
import stat
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from vivavoce.gateway.access.errors import KeyRefused
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.cli.commands.keys import keys as command
from vivavoce.tts_engine.errors import BadRequest


@pytest.fixture
def file(tmp_path: Path) -> KeysFile:
    return KeysFile(tmp_path / "keys.json")


def add_key(file: KeysFile, *scopes: Scope) -> str:
    return file.add("test", scopes or (Scope.SPEAK,), KeyLimits())


def test_a_key_is_checked_with_its_scopes_and_limits(file: KeysFile) -> None:
    key = file.add("reception", (Scope.SPEAK, Scope.CALLS), KeyLimits(60, 1000, 2))
    record = file.check(key)
    assert (record.name, record.scopes) == ("reception", (Scope.SPEAK, Scope.CALLS))
    assert record.limits == KeyLimits(60, 1000, 2)


def test_the_file_has_no_secret_and_is_readable_by_its_owner_only(file: KeysFile, tmp_path: Path) -> None:
    key = add_key(file)
    path = tmp_path / "keys.json"
    assert key.split("_", 2)[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_are_unique(file: KeysFile) -> None:
    assert len({add_key(file) for _ in range(50)}) == len(list(file)) == 50


@pytest.mark.parametrize(
    "change",
    [
        lambda key: "",
        lambda key: " " + key,
        lambda key: key + " ",
        lambda key: key + "\n",
        lambda key: key[:-1],
        lambda key: key[:-1] + ("A" if key[-1] != "A" else "B"),
        lambda key: key.upper(),
        lambda key: "vv_00000000_" + key[12:],
        lambda key: key[:12],
        lambda key: "sk-" + key,
        lambda key: key + key,
        lambda key: "vv_" + "\u0660" * 8 + key[11:],
        lambda key: "\x00" + key,
    ],
)
def test_a_changed_key_is_refused(file: KeysFile, change: object) -> None:
    key = add_key(file)
    with pytest.raises(KeyRefused):
        file.check(change(key))  # type: ignore[operator]


def test_a_refusal_does_not_reveal_the_reason(file: KeysFile) -> None:
    key = add_key(file)
    revoked = add_key(file)
    file.revoke(revoked[3:11])
    sentences = set()
    for wrong in ("", "vv_00000000_" + key[12:], key[:-1] + "-", revoked):
        with pytest.raises(KeyRefused) as refusal:
            file.check(wrong)
        sentences.add(str(refusal.value))
    assert len(sentences) == 1


def test_a_key_revoked_elsewhere_is_refused_at_once(file: KeysFile, tmp_path: Path) -> None:
    key, other = add_key(file), add_key(file)
    file.check(key)
    KeysFile(tmp_path / "keys.json").revoke(key[3:11])
    with pytest.raises(KeyRefused):
        file.check(key)
    assert file.check(other)


def test_a_key_added_by_another_process_is_valid_at_once(file: KeysFile, tmp_path: Path) -> None:
    add_key(file)
    list(file)
    assert file.check(KeysFile(tmp_path / "keys.json").add("late", (Scope.CALLS,), KeyLimits()))


def test_a_deleted_file_refuses_all_keys(file: KeysFile, tmp_path: Path) -> None:
    key = add_key(file)
    file.check(key)
    (tmp_path / "keys.json").unlink()
    with pytest.raises(KeyRefused):
        file.check(key)


def test_keys_added_at_the_same_time_are_all_stored(tmp_path: Path) -> None:
    files = [KeysFile(tmp_path / "keys.json") for _ in range(8)]
    threads = [threading.Thread(target=add_key, args=(file,)) for file in files for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(KeysFile(tmp_path / "keys.json"))) == 32


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"keys": [{"id": "x"}]}', '{"keys": 3}', "\x00", "[" * 100_000, "1" * 10_000],
    ids=lambda content: content[:20],
)
def test_a_file_that_is_not_a_keys_file_is_an_error_and_refuses_all_keys(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(BadRequest, match="not a keys file"):
        list(KeysFile(path))
    serving = KeysFile(path)
    for _ in range(3):  # clients see no reason, and the log has it once
        with pytest.raises(KeyRefused):
            serving.check("vv_00000000_" + "A" * 43)
    assert [record.getMessage()[:20] for record in caplog.records] == ["All keys are refused"]
    assert "not a keys file" in caplog.text
    with pytest.raises(BadRequest, match="not a keys file"):
        KeysFile(path).add("x", (Scope.SPEAK,), KeyLimits())
    assert path.read_text() == content


def test_a_file_that_cannot_be_reached_refuses_all_keys_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    serving = KeysFile(tmp_path / "file" / "keys.json")  # ENOTDIR; without search permission it is EACCES
    for _ in range(3):
        with pytest.raises(KeyRefused):
            serving.check("vv_00000000_" + "A" * 43)
    [record] = caplog.records
    assert record.getMessage().endswith("keys.json: cannot be read: Not a directory")


def test_a_repaired_file_accepts_its_keys_again(file: KeysFile, tmp_path: Path) -> None:
    key, path = add_key(file), tmp_path / "keys.json"
    good = path.read_text()
    path.write_text("{")
    with pytest.raises(KeyRefused):
        file.check(key)
    path.write_text(good)
    assert file.check(key)


def test_an_unknown_scope_makes_the_file_invalid(file: KeysFile, tmp_path: Path) -> None:
    add_key(file)
    path = tmp_path / "keys.json"
    content = json.loads(path.read_text())
    content["keys"][0]["scopes"] = ["root"]
    path.write_text(json.dumps(content))
    with pytest.raises(BadRequest, match="root"):
        list(file)


def test_a_failed_write_leaves_the_old_file(
    file: KeysFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = add_key(file)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        add_key(file)
    assert file.check(key)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.json", "keys.json.lock"]


def test_a_key_without_scopes_is_refused(file: KeysFile) -> None:
    with pytest.raises(BadRequest, match="at least one"):
        file.add("x", (), KeyLimits())


def test_the_command_adds_lists_and_revokes_keys(tmp_path: Path) -> None:
    path = str(tmp_path / "new folder" / "keys.json")
    run = CliRunner().invoke
    key = run(
        command, ["add", "bot", "--keys-file", path, "--scope", "speak", "--streams", "3"]
    ).output.strip()
    assert KeysFile(Path(path)).check(key).limits.streams == 3
    listed = run(command, ["list", "--keys-file", path]).output
    assert "bot" in listed and "3 streams" in listed and key not in listed
    assert "revoked" in run(command, ["revoke", key[3:11], "--keys-file", path]).output
    with pytest.raises(KeyRefused):
        KeysFile(Path(path)).check(key)
    assert run(command, ["revoke", "unknown", "--keys-file", path]).exit_code != 0


def test_the_command_changes_what_was_given_and_lists_old_scopes(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    old = KeysFile(Path(path)).add("old", (Scope.CALLS,), KeyLimits(streams=3))[3:11]
    run = CliRunner().invoke
    listed = run(command, ["list", "--keys-file", path])
    assert f"the scope 'calls' of {old} is old" in listed.stderr
    options = ["--scope", "calls:own", "--agent", "sales", "--destination", "2??", "--destination", "+49*"]
    limits = ["--max-calls", "2", "--max-sockets", "4", "--expires", "2100-01-31"]
    changed = run(command, ["change", old, "--keys-file", path, *options, *limits])
    assert changed.exit_code == 0, changed.output
    for text in (
        "calls:own",
        "3 streams",
        "2 calls",
        "4 sockets",
        "agent sales",
        "destination 2??",
        "2100-01-31",
    ):
        assert text in changed.output
    (key,) = KeysFile(Path(path))
    assert (key.scopes, key.agents, key.destinations) == ((Scope.CALLS_OWN,), ("sales",), ("2??", "+49*"))
    assert (key.limits, key.expires_at) == (KeyLimits(streams=3, max_calls=2, max_sockets=4), 4_105_036_800)
    assert run(command, ["list", "--keys-file", path]).stderr == ""
    for wrong in (["change", old], ["change", "unknown", "--streams", "1"], ["add", "x", "--scope", "calls"]):
        assert run(command, [*wrong, "--keys-file", path]).exit_code != 0


def test_a_record_without_new_fields_is_written_as_before(file: KeysFile, tmp_path: Path) -> None:
    file.add("x", (Scope.SPEAK,), KeyLimits(streams=1))
    (entry,) = json.loads((tmp_path / "keys.json").read_text())["keys"]
    assert set(entry) == {"id", "name", "scopes", "limits", "created_at", "revoked_at", "secret_sha256"}
    assert entry["limits"] == {"streams": 1}
