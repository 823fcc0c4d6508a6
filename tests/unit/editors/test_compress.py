"""The compress and decompress editors: what they restore, what they report, and which bodies they refuse."""

import gzip
import zlib
from functools import partial
from typing import Any

import brotli
import pytest
import zstandard

from shared.amqp.codec import encode
from shared.amqp.values import long, string
from tests.editing import edited, editor, rejection
from tests.messages import message

compress = partial(editor, "compress")
decompress = partial(editor, "decompress")
ENCODINGS = ("gzip", "zstd", "brotli")
UNNAMED = ("NotCompressed", "the content encoding names no compression, expected gzip, zstd, br")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_compress_and_decompress_restore_a_message(encoding: Any) -> None:
    for before in (None, "utf-8", "gzip"):
        received = message(body=b"content" * 30, content_encoding=before)
        original = received.encode()
        packed = edited(compress(encoding=encoding), received)
        assert packed.encode() != original
        unpacked = edited(decompress(), packed)
        assert (unpacked.body, unpacked.content_encoding) == (b"content" * 30, before)
        if before is not None:
            assert unpacked.encode() == original


def test_standard_libraries_decompress_the_result_which_is_the_same_for_the_same_body() -> None:
    body = b"content" * 30
    for encoding, standard in zip(ENCODINGS, (gzip, zstandard, brotli), strict=True):
        first, second = (edited(compress(encoding=encoding), message(body=body)).body for _ in range(2))
        assert first == second
        assert standard.decompress(first) == body


def test_a_body_below_the_minimum_size_is_not_compressed() -> None:
    received = message(body=b"123")
    before = received.encode()
    assert edited(compress(encoding="gzip", min_size=4), received).encode() == before
    assert edited(compress(encoding="gzip", min_size=3), received).content_encoding == "gzip"


def test_a_string_body_is_compressed_as_its_text() -> None:
    received = message(body=b"{}")
    received.sections.body = b"\x00\x53\x77" + encode(string("Köln"))
    assert edited(decompress(), edited(compress(encoding="gzip"), received)).body == "Köln".encode()
    received.sections.body = b"\x00\x53\x77" + encode(long(5))
    assert rejection(compress(encoding="gzip"), received)[0] == "UnreadableBody"


def test_an_encoding_has_several_names_in_any_case() -> None:
    body = gzip.compress(b"content")
    for name in ("gzip", "x-gzip", "GZip"):
        assert edited(decompress(), message(body=body, content_encoding=name)).body == b"content"


@pytest.mark.parametrize(
    ("encoding", "body", "expected"),
    [
        ("gzip", b"", ("NotCompressed", "body is gzip that is cut off")),
        ("gzip", b"content", ("NotCompressed", "body is not gzip, or is damaged")),
        ("gzip", gzip.compress(b"content")[:-1], ("NotCompressed", "body is gzip that is cut off")),
        ("gzip", gzip.compress(b"content") + b"more", ("TrailingBytes", "body has bytes after the end of its gzip")),
        ("gzip", gzip.compress(b"a")[:-8] + bytes(8), ("NotCompressed", "body is not gzip, or is damaged")),
        ("gzip", gzip.compress(b"") * 1001, ("NotCompressed", "body is gzip of more than 1000 members")),
        ("zstd", zstandard.compress(b"a") + b"more", ("TrailingBytes", "body has bytes after the end of its zstd")),
        ("zstd", zstandard.compress(b"content")[:-1], ("NotCompressed", "body is zstd that is cut off")),
        ("zstd", b"content", ("NotCompressed", "body is not zstd, or is damaged")),
        ("br", brotli.compress(b"content") + b"more", ("NotCompressed", "body is not brotli, or is damaged")),
        ("br", brotli.compress(b"content")[:-1], ("NotCompressed", "body is brotli that is cut off")),
        ("deflate", zlib.compress(b"content"), UNNAMED),
        (None, gzip.compress(b"content"), UNNAMED),
    ],
    ids=range(13),
)
def test_a_body_that_is_not_compressed_is_rejected_with_the_reason(encoding: Any, body: Any, expected: Any) -> None:
    assert rejection(decompress(), message(body=body, content_encoding=encoding)) == expected


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_concatenated_compressed_streams_become_one_body(encoding: Any) -> None:
    piece = edited(compress(encoding=encoding), message(body=b"content")).body
    assert edited(decompress(encoding=encoding), message(body=piece + piece)).body == b"contentcontent"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_decompressed_body_may_reach_the_size_limit_but_not_exceed_it(encoding: Any) -> None:
    exact = edited(compress(encoding=encoding), message(body=bytes(1000)))
    assert edited(decompress(max_size=1000), exact).body == bytes(1000)
    larger = edited(compress(encoding=encoding), message(body=bytes(1001)))
    assert rejection(decompress(max_size=1000), larger)[0] == "BodyTooLarge"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_decompressed_body_may_reach_the_ratio_limit_but_not_exceed_it(encoding: Any) -> None:
    packed = edited(compress(encoding=encoding), message(body=bytes(50_000)))
    problem = "body becomes more than 10 times its compressed size"
    assert rejection(decompress(max_ratio=10), packed) == ("BodyTooLarge", problem)


def test_a_bomb_that_does_not_declare_its_size_is_rejected() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    bomb = stream.compress(bytes(2**26)) + stream.flush()
    assert len(bomb) < 10_000
    assert rejection(decompress(), message(body=bomb, content_encoding="zstd"))[0] == "BodyTooLarge"


def test_a_window_beyond_the_limit_is_not_allocated() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = stream.compress(b"x") + stream.flush()
    assert rejection(decompress(max_size=100), message(body=frame, content_encoding="zstd"))[0] == "NotCompressed"


def test_options_supply_what_the_message_lacks() -> None:
    body = gzip.compress(b"content")
    received = edited(decompress(encoding="gzip"), message(body=body))
    assert (received.body, received.content_encoding) == (b"content", None)
    assert rejection(decompress(encoding="zstd"), message(body=body, content_encoding="gzip")) == (
        "WrongEncoding",
        "the content encoding is gzip, expected zstd",
    )


def test_a_body_that_is_not_compressed_passes_if_the_options_allow_it() -> None:
    passing = decompress(uncompressed="pass", encoding="gzip")
    for received in (message(body=b"content"), message(body=b"content", content_encoding="utf-8")):
        before = received.encode()
        assert edited(passing, received).encode() == before
    assert rejection(passing, message(body=b"content", content_encoding="gzip"))[0] == "NotCompressed"
    assert edited(passing, message(body=gzip.compress(b"content"))).body == b"content"
