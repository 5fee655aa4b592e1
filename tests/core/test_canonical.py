from __future__ import annotations

import contextlib
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enclave.core.canonical import (
    MAX_SAFE_INTEGER,
    digest_bytes,
    parse_canonical,
    parse_json_object,
    print_canonical,
)
from enclave.core.encoding import lp
from enclave.core.errors import DocumentRefused
from tests.core.builders import expect_refusal

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
LEAVES = st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | TEXT
VALUES = st.recursive(
    LEAVES,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_parse_print_compare(value: dict[str, object]) -> None:
    printed = print_canonical(value)
    assert parse_canonical(printed) == value
    assert print_canonical(parse_canonical(printed)) == printed


@given(st.dictionaries(TEXT, VALUES, min_size=2, max_size=5))
def test_any_other_spelling_is_refused(value: dict[str, object]) -> None:
    printed = print_canonical(value)
    spaced = json.dumps(value, ensure_ascii=False, indent=1).encode()
    expect_refusal("document_not_canonical", lambda: parse_canonical(spaced))
    expect_refusal("document_not_canonical", lambda: parse_canonical(printed + b"\n"))
    assert parse_json_object(spaced) == value


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_refusal_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(DocumentRefused):
        assert print_canonical(parse_canonical(data)) == data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "document_not_json"),
        (b"[1]", "document_not_object"),
        (b'{"a":1.0}', "document_float"),
        (b'{"a":1e3}', "document_float"),
        (b'{"a":NaN}', "document_float"),
        (b'{"a":-Infinity}', "document_float"),
        (b'{"a":1,"a":1}', "document_duplicate_key"),
        (b'{"a":9007199254740992}', "document_integer_range"),
        (b'{"a":' + b"9" * 5000 + b"}", "document_integer_range"),
        (b'{"a":-0}', "document_not_canonical"),
        (b'{"b":1,"a":1}', "document_not_canonical"),
        (b'{"a":"\\u0041"}', "document_not_canonical"),
        (b'{"a":"\\ud800"}', "document_not_canonical"),
        (b'\xef\xbb\xbf{"a":1}', "document_not_json"),
        (b'{"a":"\xff"}', "document_not_json"),
        (b'{"a":1}{"b":2}', "document_not_json"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "document_too_deep"),
        (b"[" * 100_000, "document_not_json"),
    ],
)
def test_refusals(data: bytes, code: str) -> None:
    expect_refusal(code, lambda: parse_canonical(data))


def test_size_is_refused_before_parsing() -> None:
    expect_refusal("document_too_large", lambda: parse_canonical(b"[" * 11, max_bytes=10))


def test_digest_is_sha256_hex() -> None:
    assert digest_bytes(b"abc").startswith("ba7816bf8f01cfea414140de5dae2223")


FIELDS = st.lists(st.binary(max_size=12), max_size=4)
TAGS = st.text(string.ascii_lowercase + "/", min_size=1, max_size=8).map(str.encode)


@given(TAGS, FIELDS, TAGS, FIELDS)
def test_length_prefixes_are_unambiguous(
    tag: bytes, fields: list[bytes], other_tag: bytes, other: list[bytes]
) -> None:
    same = (tag, fields) == (other_tag, other)
    assert (lp(tag, *fields) == lp(other_tag, *other)) == same


def test_length_prefixed_example() -> None:
    assert lp(b"t", b"", b"ab") == b"t\x00" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x02ab"


@pytest.mark.parametrize("tag", [b"", b"a\x00b"])
def test_malformed_tag(tag: bytes) -> None:
    with pytest.raises(ValueError, match="tag"):
        lp(tag)
