"""Downloads of a journal: a server that lies in its listing writes no file outside the folder; several at once."""

import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from busway_reconcile.container import Results
from busway_reconcile.read.staging import JournalUnreachable, container, path_below, stage

NOW = datetime.now(UTC)
HTTP_TIME = f"{NOW:%a, %d %b %Y %H:%M:%S GMT}"
HOUR = f"task=x/date={NOW:%Y-%m-%d}/hour={NOW:%H}"
CONTENT = b"written by a blob name"
HOSTILE = [
    *("../evil.jsonl.gz", f"{HOUR}/../../../../evil.jsonl.gz", f"{HOUR}/..", f"{HOUR}/./evil.jsonl.gz"),
    *(f"{HOUR}//evil.jsonl.gz", f"{HOUR}/..\\..\\evil.jsonl.gz", f"{HOUR}/{'x' * 300}.jsonl.gz", "/etc/evil.jsonl.gz"),
    *(f"{HOUR}/\u202eevil.jsonl.gz", f"{HOUR}/a\tb.jsonl.gz"),
]


@contextmanager
def server(names: list[str]) -> Iterator[str]:
    """Run a storage server whose every listing has blobs of these *names*; give the address of a container."""
    blobs = "".join(
        f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{HTTP_TIME}</Last-Modified><Etag>1</Etag>"
        f"<Content-Length>{len(CONTENT)}</Content-Length><BlobType>AppendBlob</BlobType></Properties></Blob>"
        for name in names
    )
    listing = (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="journal">'
        f"<Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"
    ).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_list = "comp=list" in self.path
            body = listing if is_list else CONTENT
            self.send_response(200 if is_list else 206)
            headers = {"Content-Type": "application/xml" if is_list else "text/plain", "ETag": '"1"'}
            headers |= {"Content-Range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}", "x-ms-blob-type": "AppendBlob"}
            for name, value in {**headers, "Last-Modified": HTTP_TIME, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/journal?sv=x"
        finally:
            running.shutdown()
            thread.join()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_journal_file_is_written_outside_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a/b/c/d/e/f"
    with server([name]) as address, pytest.raises(JournalUnreachable, match="no name of a file"):
        stage(*container(address, None), folder)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["journal.json"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_result_is_written_outside_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a/b"
    with server([f"runs/2026-11-20T00--2026-11-21T00/{each}" for each in ("summary.json", name)]) as address:
        results = Results(*container(address, None), folder)
        with pytest.raises(JournalUnreachable, match="no name of a file"):
            results.download("2026-11-20T00", without=None)
    assert not [path for path in tmp_path.rglob("evil*") if folder not in path.parents]


def test_a_name_that_is_a_file_and_a_folder_is_an_error(tmp_path: Path) -> None:
    names = [f"{HOUR}/a.jsonl.gz", f"{HOUR}/a.jsonl.gz/b.jsonl.gz"]
    with server(names) as address, pytest.raises(JournalUnreachable, match="as a file and as a folder"):
        stage(*container(address, None), tmp_path)


def test_names_of_journals_and_results_are_below_the_folder(tmp_path: Path) -> None:
    for name in (f"{HOUR}/role=source/a_1-2.jsonl.gz", "runs/x/part-0.c000.snappy.parquet", "task=a~B1/date=x/..."):
        assert path_below(tmp_path, name) == tmp_path / name


def test_several_downloads_of_a_journal_to_the_same_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    names = [f"{HOUR}/{number}.jsonl.gz" for number in range(10)]
    with server(names) as address, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: stage(*container(address, None), tmp_path), range(4)))
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert files.pop("journal.json")
    assert files == {name.rsplit("/", 1)[1]: CONTENT for name in names}
