"""Files for /bundle and /suite: hostile paths, sizes and counts."""

import os
import socket
import threading

import pytest

from enclave.core.errors import Refusal, RunRefused
from enclave.workload.frames import send_frame
from enclave.workload.isolation.inputs import (
    InputFile,
    receive_inputs,
    send_inputs,
    split_safe_path,
)


@pytest.fixture
def trees(tmp_path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "suite").mkdir()
    return tmp_path


@pytest.fixture
def pair():
    here, there = socket.socketpair()
    here.settimeout(5)
    there.settimeout(5)
    with here, there:
        yield here, there


def a_file(tmp_path, content=b"content"):
    path = tmp_path / "source"
    path.write_bytes(content)
    return os.open(path, os.O_RDONLY)


def receive(there, root):
    """Receive in a thread; returns the refusal or the count."""
    result = []

    def run():
        try:
            result.append(receive_inputs(there, str(root)))
        except Refusal as refusal:
            result.append(refusal)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, result


def test_files_arrive(trees, pair):
    descriptor = a_file(trees)
    files = [
        InputFile("bundle", "task.py", 7, descriptor),
        InputFile("bundle", "data/deep/a b.json", 7, descriptor),
        InputFile("suite", "items.jsonl", 3, descriptor),
        *(InputFile("suite", f"many/{n}.txt", 7, descriptor) for n in range(150)),
    ]
    thread, result = receive(pair[1], trees)
    send_inputs(pair[0], files)
    thread.join(5)
    assert result == [153]
    assert (trees / "bundle/data/deep/a b.json").read_bytes() == b"content"
    assert (trees / "suite/items.jsonl").read_bytes() == b"con"
    assert (trees / "bundle/task.py").stat().st_mode & 0o777 == 0o444
    assert len(list((trees / "suite/many").iterdir())) == 150


def test_no_files(trees, pair):
    thread, result = receive(pair[1], trees)
    send_inputs(pair[0], [])
    thread.join(5)
    assert result == [0]


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/etc/passwd", "..", "../x", "a/../x", "a//b", "a/", "/a", ".", "./a", "a/./b"),
        *(".hidden", "a/.pth", "a\0b", "a\nb", "ü", "a\\b", "~", "x" * 200, "a/" * 16 + "a", " a"),
    ],
)
def test_unsafe_paths_are_refused_on_both_sides(trees, pair, path):
    with pytest.raises(RunRefused) as caught:
        split_safe_path(path)
    assert caught.value.code == "input_path"
    descriptor = a_file(trees)
    thread, result = receive(pair[1], trees)
    entry = {"tree": "bundle", "path": path, "size": 1}
    send_frame(pair[0], {"event": "inputs", "files": [entry], "last": True}, [descriptor])
    thread.join(5)
    assert result[0].code in {"input_path", "document_field_value"}
    assert list((trees / "bundle").iterdir()) == []


def refused(trees, pair, entries, descriptors):
    thread, result = receive(pair[1], trees)
    send_frame(pair[0], {"event": "inputs", "files": entries, "last": True}, descriptors)
    thread.join(5)
    return result[0].code


def test_duplicates_sizes_trees_and_counts(trees, pair):
    descriptor = a_file(trees)
    one = {"tree": "bundle", "path": "a", "size": 1}
    assert refused(trees, pair, [one, one], [descriptor] * 2) == "input_duplicate"
    short = {"tree": "suite", "path": "b", "size": 8}
    assert refused(trees, pair, [short], [descriptor]) == "input_size"
    other = {"tree": "etc", "path": "b", "size": 1}
    assert refused(trees, pair, [other], [descriptor]) == "document_field_value"
    assert refused(trees, pair, [one], []) == "input_descriptors"
    beneath = {"tree": "bundle", "path": "a/b", "size": 1}
    assert refused(trees, pair, [beneath], [descriptor]) == "input_path"


def test_links_are_not_followed(trees, pair):
    outside = trees / "outside"
    outside.mkdir()
    (trees / "bundle/link").symlink_to(outside)
    (trees / "bundle/file").symlink_to(outside / "written")
    descriptor = a_file(trees)
    for path in ("link/x", "file"):
        thread, result = receive(pair[1], trees)
        entry = {"tree": "bundle", "path": path, "size": 1}
        send_frame(pair[0], {"event": "inputs", "files": [entry], "last": True}, [descriptor])
        thread.join(5)
        assert result[0].code in {"input_path", "input_duplicate"}
    assert list(outside.iterdir()) == []
