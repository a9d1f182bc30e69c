"""The configuration file: who may read it, what it may say, and its form in the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from credential_shim import configuration
from credential_shim.configuration import Configuration, load
from credential_shim.errors import UsageError

TEXT = 'login = "spn"\nclient_secret = "canary"\nsend_certificate_chain = true\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "credential.toml"
    file.write_text(TEXT)
    file.chmod(0o600)
    return file


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    return cache


def loaded(file: Path, cache: Path) -> Configuration:
    return load(str(file), os.lstat(file), str(cache))


def refusal(file: Path, cache: Path) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(file, cache)
    assert str(file) in caught.value.message
    assert "canary" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_touch_is_refused_naming_the_mode(
    file: Path, cache: Path, mode: int
) -> None:
    loaded(file, cache).remember(str(cache))
    file.chmod(mode)
    assert f"{mode:04o}" in refusal(file, cache)


@pytest.mark.root
def test_a_file_of_another_user_is_refused(file: Path, cache: Path) -> None:
    os.chown(file, 12345, -1)
    assert "12345" in refusal(file, cache)


def test_a_link_a_directory_and_a_fifo_are_refused(file: Path, cache: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    refusal(link, cache)
    refusal(cache, cache)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    assert "regular" in refusal(fifo, cache)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('client_secret = "canary', "not TOML"),
        ("canary", "not TOML"),
        ("\udcff", "not TOML"),
        ('canary_key = "x"', "unknown key"),
        ("login = 1", "login"),
        ('login = ""', "login"),
        ('login = "a\\nb"', "login"),
        ('send_certificate_chain = "yes"', "send_certificate_chain"),
        ('client_secret = ["canary"]', "client_secret"),
        ("# " + "x" * configuration.LIMIT, "longer"),
    ],
)
def test_what_is_wrong_is_named_and_never_quoted(
    file: Path, cache: Path, text: str, cause: str
) -> None:
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError) as caught:
        loaded(file, cache)
    assert cause in caught.value.message
    assert "canary" not in caught.value.message.replace("canary_key", "")


def test_the_second_run_needs_no_toml_and_the_cache_holds_no_secret(
    file: Path, cache: Path
) -> None:
    first = loaded(file, cache)
    assert (first.compiled, first.values["login"]) == (False, "spn")
    first.remember(str(cache))
    second = loaded(file, cache)
    assert second.compiled
    assert second.values == first.values
    assert second.secret("client_secret") == "canary"
    (remembered,) = cache.iterdir()
    assert b"canary" not in remembered.read_bytes()
    assert remembered.stat().st_mode & 0o777 == 0o600


def test_a_changed_file_is_read_again_even_at_the_same_length_and_time(
    file: Path, cache: Path
) -> None:
    loaded(file, cache).remember(str(cache))
    times = file.stat()
    file.write_text(TEXT.replace("spn", "msi"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert loaded(file, cache).values["login"] == "msi"


def test_another_files_memory_is_not_used(file: Path, cache: Path, tmp_path: Path) -> None:
    loaded(file, cache).remember(str(cache))
    other = tmp_path / "other.toml"
    os.link(file, other)
    assert not loaded(other, cache).compiled


def test_without_a_usable_cache_the_file_is_read_each_time(file: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    loaded(file, absent).remember(str(absent))
    assert not loaded(file, absent).compiled
    assert not absent.exists()


@pytest.mark.parametrize("key", configuration.FILES)
def test_a_plain_name_is_a_file_beside_the_configuration(
    file: Path, cache: Path, key: str, tmp_path: Path
) -> None:
    file.write_text(f'{key} = "a.name"\n')
    first = loaded(file, cache)
    assert first.values == {key: f"{tmp_path}/a.name"}
    first.remember(str(cache))
    assert loaded(file, cache).values == first.values
    file.write_text(f'{key} = "/of/its/own"\n')
    assert loaded(file, cache).values == {key: "/of/its/own"}


@pytest.mark.parametrize("name", ["../a", "a/b", "./a", "..", "."])
def test_a_name_that_leads_elsewhere_is_refused(file: Path, cache: Path, name: str) -> None:
    file.write_text(f'client_secret_file = "{name}"\n')
    assert "beside it" in refusal(file, cache)
