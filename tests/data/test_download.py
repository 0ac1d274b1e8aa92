"""Downloads from a server on this machine that can do everything that servers do wrong."""

import fcntl
import io
import json
import shutil
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import h5py
import numpy as np
import pytest
from small_datasets import assert_same, make_arrays

from corsdice.cli import dsrl as command
from corsdice.cli import main
from corsdice.data import check, dataset_from, read, resumable
from corsdice.data.download import address, download, part_of
from corsdice.data.dsrl import DSRL_TASKS, dsrl_task
from corsdice.errors import UserError

TASK = dsrl_task("BallRun")


def hdf5(arrays):
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return content.getvalue()


def task_arrays(seed=0, task=TASK):
    return make_arrays(observation=(task.obs_dim,), action=(task.act_dim,), seed=seed)


GOOD = hdf5(task_arrays())
HALF = len(GOOD) // 2
CHANGED = hdf5(task_arrays(seed=1))
LONGER = hdf5(task_arrays(seed=1) | {"more": np.zeros(1000)})


@dataclass
class Answer:
    """What the server does with a request."""

    body: bytes = GOOD
    etag: str | None = '"1"'
    modified: str | None = None
    ranges: bool = True
    heeds_if_range: bool = True
    cut: int | None = None
    """Hang up after so many bytes."""
    stall: bool = False
    """Say no more after them, instead of hanging up."""
    length: int | None = None
    """Announced, if not the truth."""
    extra: bytes = b""
    """Sent after what was announced."""
    chunked: bool = False
    status: int | None = None
    location: str | None = None


@dataclass
class Server:
    url: str
    answers: list[Answer] = field(default_factory=lambda: [Answer()])
    """One for each request; the last for all that follow."""
    requests: list[dict[str, str]] = field(default_factory=list)
    stalled: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


def respond(handler, server, answer):
    if answer.status:
        handler.send_response(answer.status)
        if answer.location:
            handler.send_header("Location", answer.location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    start = 0
    same = not answer.heeds_if_range or handler.headers.get("If-Range") in (answer.etag, answer.modified)
    if answer.ranges and same and "Range" in handler.headers:
        start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
    if start >= len(answer.body):
        handler.send_error(416)
        return
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(answer.body) - 1}/{len(answer.body)}")
    for name, value in (("ETag", answer.etag), ("Last-Modified", answer.modified)):
        if value:
            handler.send_header(name, value)
    sent = answer.body[start : answer.cut]
    if answer.chunked:
        handler.send_header("Transfer-Encoding", "chunked")
        sent = b"%x\r\n%s\r\n" % (len(sent), sent) + (b"" if answer.cut else b"0\r\n\r\n")
    else:
        handler.send_header("Content-Length", str(answer.length or len(answer.body) - start))
    handler.end_headers()
    handler.wfile.write(sent + answer.extra)
    handler.wfile.flush()
    if answer.stall:
        server.stalled.set()
        server.released.wait(30)


@pytest.fixture
def server(monkeypatch):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.close_connection = True
            state.requests.append({"path": self.path, **self.headers})
            answer = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            with suppress(ConnectionError):  # the client may have gone
                respond(self, state, answer)

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("DSRL_MIRROR", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as real:
        real.daemon_threads = False  # leaving the block waits for them
        state = Server(f"http://127.0.0.1:{real.server_port}/download")
        thread = threading.Thread(target=real.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        state.released.set()
        real.shutdown()
        thread.join()


@pytest.fixture
def get(server, tmp_path):
    """Downloads into tmp_path, without pauses."""

    def get(**options):
        return download(TASK, tmp_path, **{"mirror": server.url, "timeout": 5.0, "pause": 0.0} | options)

    return get


@pytest.fixture
def part(tmp_path):
    return part_of(tmp_path / TASK.dataset_file)


def ranges(server):
    return [request.get("Range") for request in server.requests]


def visible(directory):
    return [path.name for path in directory.iterdir() if not path.name.startswith(".")]


def refusal(get, **options):
    with pytest.raises(UserError) as refused:
        get(**options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_file_arrives_whole(server, get, tmp_path):
    told = []
    path = get(progress=lambda here, total: told.append((here, total)))
    assert path.read_bytes() == GOOD
    assert visible(tmp_path) == [TASK.dataset_file]
    assert server.requests[0]["path"] == f"/download/{TASK.dataset_file}"
    assert (told[0], told[-1]) == ((0, len(GOOD)), (len(GOOD), len(GOOD)))
    assert_same(check(read(path)), dataset_from(task_arrays()))


@pytest.mark.parametrize("stall", [False, True])
def test_what_was_cut_or_stalled_goes_on(server, get, stall):
    server.answers = [Answer(cut=HALF, stall=stall), Answer()]
    assert get(timeout=0.5).read_bytes() == GOOD
    assert ranges(server) == [None, f"bytes={HALF}-"]
    assert server.requests[1]["If-Range"] == '"1"'


def test_a_date_is_enough_to_go_on_and_a_weak_tag_is_not(server, get):
    date = "Mon, 01 Jan 2024 00:00:00 GMT"
    server.answers = [Answer(etag='W/"1"', modified=date, cut=HALF), Answer(etag='W/"1"', modified=date)]
    assert get().read_bytes() == GOOD
    assert server.requests[1]["If-Range"] == date
    server.answers = [Answer(etag='W/"1"', cut=HALF), Answer(etag='W/"1"')]
    assert get().read_bytes() == GOOD
    assert ranges(server)[2:] == [None, None]


@pytest.mark.parametrize("then", [Answer(ranges=False), Answer(CHANGED, '"2"')])
def test_a_whole_answer_starts_over(server, get, then):
    """From a server that knows no ranges, or has another file than when the part was fetched."""
    server.answers = [Answer(cut=HALF), then]
    assert get().read_bytes() == then.body
    assert ranges(server) == [None, f"bytes={HALF}-"]


@pytest.mark.parametrize(("body", "etag"), [(CHANGED, '"2"'), (LONGER, '"1"')])
def test_a_server_that_ignores_if_range_cannot_mix_two_files(server, get, body, etag):
    """Told by the tag, or by the size alone."""
    server.answers = [Answer(cut=HALF), Answer(body, etag, heeds_if_range=False)]
    assert get().read_bytes() == body
    assert ranges(server) == [None, f"bytes={HALF}-", None]


def test_a_shorter_file_on_the_server_starts_over(server, get):
    server.answers = [Answer(LONGER, cut=len(GOOD) + 1000), Answer(heeds_if_range=False)]
    assert get().read_bytes() == GOOD
    assert ranges(server) == [None, f"bytes={len(GOOD) + 1000}-", None]


def test_another_run_goes_on_but_not_from_another_mirror(server, get, part):
    server.answers = [Answer(cut=HALF)]
    message = refusal(get, retries=0)
    assert f"ended after {HALF:,} of {len(GOOD):,} bytes, in the last of 1 attempts; run again to go on" in message
    assert "--mirror, or make logs here with `corsdice data collect BallRun`" in message
    assert part.read_bytes() == GOOD[:HALF]
    server.answers = [Answer()]
    assert get(mirror=f"{server.url}/elsewhere").read_bytes() == GOOD
    assert ranges(server)[-1] is None
    server.answers = [Answer(cut=HALF)]
    refusal(get, retries=0)
    server.answers = [Answer()]
    get()
    assert ranges(server)[-1] == f"bytes={HALF}-"


def test_a_part_without_its_note_starts_over(server, get, part):
    part.write_bytes(b"of unknown origin")
    assert get().read_bytes() == GOOD
    note = part.with_name(f"{part.name}.json")
    for damaged in ("", "[]", "{}", '{"url": 1}', json.dumps({"url": f"{server.url}/x", "validator": 1, "size": "x"})):
        part.write_bytes(b"of unknown origin")
        note.write_text(damaged)
        assert get().read_bytes() == GOOD
    assert set(ranges(server)) == {None}


def test_a_part_that_is_whole_needs_no_server(server, get, part):
    """As a kill between the last byte and the renaming leaves it."""
    server.answers = [Answer(cut=HALF)]
    refusal(get, retries=0)
    part.write_bytes(GOOD)
    assert get().read_bytes() == GOOD
    assert len(server.requests) == 1


def test_an_interrupt_keeps_the_part(server, get, part, monkeypatch):
    monkeypatch.setattr(resumable, "CHUNK", 100)

    def interrupt(here, total):
        if here >= 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(progress=interrupt)
    assert part.read_bytes() == GOOD[: part.stat().st_size]
    size = part.stat().st_size
    assert get().read_bytes() == GOOD
    assert ranges(server) == [None, f"bytes={size}-"]


def test_a_server_that_only_stalls_is_given_up(server, get, part):
    server.answers = [Answer(cut=HALF, stall=True)]
    assert "timed out, in the last of 2 attempts" in refusal(get, timeout=0.3, retries=1)
    assert len(server.requests) == 2
    assert part.stat().st_size == HALF


def test_an_answer_without_a_length(server, get):
    server.answers = [Answer(chunked=True, cut=HALF), Answer(chunked=True)]
    assert get().read_bytes() == GOOD
    assert ranges(server) == [None, None]


def test_no_more_is_taken_than_was_announced(server, get, monkeypatch):
    server.answers = [Answer(extra=b"more")]
    assert get().read_bytes() == GOOD
    server.answers = [Answer(cut=HALF), Answer(length=len(GOOD), extra=b"more")]  # a range longer than the rest
    assert get().read_bytes() == GOOD
    assert ranges(server) == [None, None, f"bytes={HALF}-"]
    monkeypatch.setattr(resumable, "LARGEST", 100)
    server.answers = [Answer(chunked=True)]
    assert "100 bytes that begin with" in refusal(get)


def test_too_much_is_refused_before_it_comes(server, get, tmp_path, monkeypatch):
    server.answers = [Answer(length=10**15)]
    assert "claims 1,000,000,000,000,000 bytes" in refusal(get)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    server.answers = [Answer()]
    assert "has 0 MB free" in refusal(get)
    assert visible(tmp_path) == []


WRONG = {
    r"is not the dataset of BallRun, but 26 bytes that begin with b'<html>please log in</html>'": (
        b"<html>please log in</html>"
    ),
    "truncated file": GOOD[:HALF],
    "an HDF5 file without costs, timeouts": hdf5(
        {name: array for name, array in task_arrays().items() if name not in ("costs", "timeouts")}
    ),
    r"with observations \(12, 8\), where a row of BallRun has 7": hdf5(task_arrays(task=dsrl_task("BallCircle"))),
    r"unequal rows or none: .*actions \(3, 2\)": hdf5(task_arrays() | {"actions": np.zeros((3, 2))}),
    r"unequal rows or none: observations \(0, 7\)": hdf5({k: array[:0] for k, array in task_arrays().items()}),
    r"unequal rows or none: .*costs \(\)": hdf5(task_arrays() | {"costs": np.float32(1)}),
    r"unequal rows or none: .*rewards \(\)": hdf5(task_arrays() | {"rewards": h5py.Empty("f")}),
    r"with costs \(12, 2\)": hdf5(task_arrays() | {"costs": np.zeros((12, 2))}),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_dataset_is_removed(server, get, tmp_path, message):
    (tmp_path / TASK.dataset_file).write_bytes(b"an older file")
    server.answers = [Answer(WRONG[message])]
    with pytest.raises(UserError, match=message):
        get()
    assert visible(tmp_path) == [TASK.dataset_file]
    assert (tmp_path / TASK.dataset_file).read_bytes() == b"an older file"
    assert len(server.requests) == 1


def test_refusals_of_the_server(server, get):
    server.answers = [Answer(status=404)]
    assert "answers 404 Not Found; choose another server" in refusal(get)
    assert len(server.requests) == 1
    server.answers = [Answer(status=503)]
    assert "answers 503 Service Unavailable, in the last of 3 attempts; choose" in refusal(get, retries=2)
    assert len(server.requests) == 4
    server.answers = [Answer(status=500), Answer()]
    assert get().read_bytes() == GOOD


@pytest.mark.parametrize("location", ["file:///etc/hostname", "ftp://127.0.0.1/file", "data:,text", "/download/loop"])
def test_a_redirect_out_of_http_or_in_a_ring_is_refused(server, get, tmp_path, location):
    server.answers = [Answer(status=302, location=location)]
    assert "cannot fetch" in refusal(get)
    assert visible(tmp_path) == []


def test_a_redirect_within_http_is_followed(server, get):
    server.answers = [Answer(status=302, location="/elsewhere"), Answer()]
    assert get().read_bytes() == GOOD
    assert server.requests[1]["path"] == "/elsewhere"


def test_no_network_is_one_line(get, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot fetch {nobody}/{TASK.dataset_file}: Connection refused" in refusal(get, mirror=nobody)

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "there is no network, or no server nowhere.test, in" in refusal(get, mirror="http://nowhere.test")


@pytest.mark.parametrize(
    "mirror",
    ["file:///data", "ftp://here/data", "here", "http://", "http://[", "http://a b", "http://a:99999", "http://ü.org"],
)
def test_only_addresses_of_http_are_servers(mirror):
    with pytest.raises(UserError, match="is no server: --mirror and DSRL_MIRROR are addresses like http://data"):
        address(TASK, mirror)


def test_the_mirror_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DSRL_MIRROR", "")
    assert address(TASK) == f"http://data.offline-saferl.org/download/{TASK.dataset_file}"
    monkeypatch.setenv("DSRL_MIRROR", "https://mirror.test/dsrl/")
    assert address(TASK) == f"https://mirror.test/dsrl/{TASK.dataset_file}"
    assert address(TASK, "http://other.test") == f"http://other.test/{TASK.dataset_file}"


def test_two_at_once_do_not_meet(server, get):
    server.answers = [Answer(cut=HALF, stall=True), Answer()]
    first = threading.Thread(target=get)
    first.start()
    assert server.stalled.wait(10)
    assert "is being downloaded by another process" in refusal(get)
    server.released.set()
    first.join()
    assert ranges(server) == [None, f"bytes={HALF}-"]
    assert get().read_bytes() == GOOD


def test_a_lock_that_a_killed_process_left_holds_nobody_up(get, tmp_path):
    (tmp_path / f".{TASK.dataset_file}.lock").touch()
    assert get().read_bytes() == GOOD


def test_a_directory_that_cannot_be_written_or_locked(server, get, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="choose another --directory"):
        download(TASK, tmp_path / "file", server.url)

    def unsupported(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert "Function not implemented; choose another --directory" in refusal(get)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    monkeypatch.setenv("DSRL_DATASET_DIR", str(path))
    return path


def test_list_by_command(cache, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["data", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [task["task"] for task in listed] == list(DSRL_TASKS)
    assert {task["cached"] for task in listed} == {None}
    cache.mkdir()
    (cache / TASK.dataset_file).write_bytes(GOOD)
    assert main(["data", "list", "--suite", "bullet", "--json"]) == 0
    listed = {task["task"]: task for task in json.loads(capsys.readouterr().out)}
    assert len(listed) == 8
    assert listed["BallRun"]["cached"] == str(cache / TASK.dataset_file)
    assert listed["BallRun"]["cost_limits"] == [10, 20, 40]
    assert main(["data", "list", "--suite", "bullet"]) == 0
    shown = capsys.readouterr().out
    assert "DroneCircle" in shown
    assert "CarGoal1" not in shown
    (row,) = (line.replace("│", " ").split() for line in shown.splitlines() if "BallRun" in line)
    assert row[-2:] == [TASK.dataset_file, "yes"]


def test_show_by_command(cache, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["data", "show", "offlineballrun-v0"]) == 0
    shown = capsys.readouterr().out
    assert "observations (7,), actions (2,), episodes of 100 steps" in shown
    assert "1327.4" in shown
    assert "fetch it with `corsdice data download BallRun`" in shown
    assert main(["data", "show", "BallRun", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["horizon"], about["cached"], about["profile"]) == (100, None, None)
    cache.mkdir()
    (cache / TASK.dataset_file).write_bytes(GOOD)
    assert main(["data", "show", "BallRun"]) == 0
    shown = capsys.readouterr().out
    assert "12 transitions in 3 episodes" in shown
    assert "the file's most" in shown
    assert "cost <= 5:" in shown
    assert main(["data", "show", "BallRun", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"]["episodes"] == 3
    assert main(["data", "show", "BallRunning"]) == 2
    assert "unknown task 'BallRunning'" in capsys.readouterr().err


def test_download_by_command(server, cache, capsys):
    target = cache / TASK.dataset_file
    mirror = ("--mirror", server.url)
    assert main(["data", "download", "BallRun", "nonsense", *mirror]) == 2
    assert main(["data", "download", *mirror]) == 2
    assert server.requests == []
    assert "name at least one task" in capsys.readouterr().err
    assert main(["data", "download", "ballrun", *mirror]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"Wrote {target} (0.0 MB)\n"
    assert shown.err == ""  # no progress bar where there is no terminal
    assert main(["data", "download", "ballrun", *mirror]) == 0
    assert "is here already; --force" in capsys.readouterr().out
    assert len(server.requests) == 1
    target.write_bytes(GOOD[:HALF])
    assert main(["data", "download", "ballrun", *mirror]) == 2
    assert "truncated file" in (said := capsys.readouterr().err)
    assert said.endswith("--force replaces it\n")
    assert main(["data", "download", "ballrun", *mirror, "--force"]) == 0
    assert target.read_bytes() == GOOD
    other = hdf5(task_arrays(task=dsrl_task("BallCircle")))
    server.answers = [Answer(), Answer(other)]
    elsewhere = cache / "deeper" / "elsewhere"
    assert main(["data", "download", "BallRun", "BallCircle", *mirror, "--directory", str(elsewhere)]) == 0
    assert len(visible(elsewhere)) == 2


def test_an_interrupt_of_the_command_says_how_to_go_on(server, cache, capsys, monkeypatch):
    monkeypatch.setattr(resumable, "CHUNK", 100)

    @contextmanager
    def impatient(*_):
        def advance(what, pieces, total):
            if pieces > 0:
                raise KeyboardInterrupt

        yield advance

    with monkeypatch.context() as patch:
        patch.setattr(command.terminal, "progress", impatient)
        assert main(["data", "download", "BallRun", "--mirror", server.url]) == 2
    assert capsys.readouterr().err.endswith(f"{TASK.dataset_file}.part: run the same command again to go on\n")
    assert main(["data", "download", "BallRun", "--mirror", server.url]) == 0
    assert ranges(server)[1].startswith("bytes=")


def test_a_file_of_dsrl_is_a_source(cache, capsys):
    assert main(["data", "check", "dsrl:BallRun"]) == 2
    assert "fetch it with `corsdice data download BallRun`" in capsys.readouterr().err
    cache.mkdir()
    (cache / TASK.dataset_file).write_bytes(GOOD)
    assert_same(read("dsrl:OfflineBallRun-v0"), dataset_from(task_arrays()))
    assert main(["data", "check", "dsrl:BallRun"]) == 0
    assert "dsrl:BallRun: 12 transitions" in capsys.readouterr().out
    with pytest.raises(UserError, match="unknown task 'Nothing'"):
        read("dsrl:Nothing")
