"""A client and the processes around it: forked children, spawned ones, and the end of the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import ServiceProcess, edge_settings
from tiny import make_bundle

LIMIT_S = 120
HEAD = """
import asyncio, gc, multiprocessing, os, sys, threading, time
import numpy as np
from edge.client import Client
from shared.errors import HeadtailError
from shared.settings import AgentGroup, EdgeSettings, Execution

IMAGE = np.zeros((1, 32, 32, 3), np.uint8)
LONG_MS = 30_000

def kind(outcome):
    return type(outcome).__name__
"""
OWN = """
mine = Client(sys.argv[1])
print("own", kind(mine.infer(IMAGE, LONG_MS)), flush=True)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


@pytest.fixture(scope="module")
def endpoint(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"ipc://{tmp_path_factory.mktemp('agent')}/agent"


@pytest.fixture(scope="module")
def agent(bundle: Path, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> object:
    with ServiceProcess("edge", tmp_path_factory.mktemp("config"), edge_settings(endpoint, [bundle])) as process:
        yield process


def run(folder: Path, program: str, *arguments: str) -> tuple[int, list[str], str]:
    """The program's status, what it printed, and what it complained of. It must end by itself."""
    path = folder / "program.py"
    path.write_text(HEAD + program)
    command = [sys.executable, "-W", "ignore:.*fork.*:DeprecationWarning", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


USES = {
    "infer": "client.infer(IMAGE)",
    "submit": "client.submit(IMAGE)",
    "withdraw": "client.withdraw(1)",
    "models": "client.models()",
    "attached": "client.attached",
    "asking": "client.asking",
    "wait_attached": "client.wait_attached()",
    "stats": "client.stats()",
    "faults": "client.faults()",
    "health": "client.health",
    "stream": "client.stream(period_ms=33)",
    "frame": "stream.submit(IMAGE)",
    "promise": "stream.promise",
    "wait_promise": "stream.wait_promise()",
    "result": "future.result()",
    "exception": "future.exception()",
    "cancel": "future.cancel()",
    "coroutine": "asyncio.run(client.ainfer(IMAGE))",
}
FORK = f"""
client = Client(sys.argv[1], name="parent")
assert client.wait_attached(30)
stream = client.stream(period_ms=33)
done = client.submit(IMAGE, LONG_MS)
done.result()
with client._loop._changed:  # another thread holds it at the moment of the fork
    future = client.submit(IMAGE, LONG_MS)
    child = os.fork()
if child == 0:
    for name, use in {USES!r}.items():
        try:
            eval(use)
        except HeadtailError as error:
            print(name, str(os.getppid()) in str(error), flush=True)
    print("done", kind(done.result()), done.cancel(), done.exception(), flush=True)
    stream.close()
    client.close()
    {OWN.replace(chr(10), chr(10) + "    ")}
    del client, stream, future
    gc.collect()
    sys.exit(3)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("parent", kind(future.result()), kind(client.infer(IMAGE, LONG_MS)), kind(stream.submit(IMAGE).result()))
"""


@pytest.mark.usefixtures("agent")
def test_a_forked_child_may_use_nothing_of_the_parents_client_and_disturbs_nothing_by_its_end(
    endpoint: str, tmp_path: Path
) -> None:
    status, said, errors = run(tmp_path, FORK, endpoint)
    assert (status, errors) == (0, "")
    refused, rest = said[: len(USES)], said[len(USES) :]
    assert refused == [f"{name} True" for name in USES]
    assert rest[:3] == ["done Answer False None", "own Answer", "child 3"]
    assert rest[3].startswith("parent Answer Answer ")


IDLE = """
import select
client = Client(sys.argv[1])
assert client.wait_attached(30)
future = client.submit(IMAGE, LONG_MS)
future.result()
stream = client.stream(period_ms=33)
stream.wait_promise(30)
child = os.fork()
if child == 0:
    stream.close()
    client.close()
    try:
        client.withdraw(future.sequence)
    except HeadtailError:
        os._exit(0)
os.waitpid(child, 0)
readable, _, _ = select.select([client._loop._mailbox.fileno(), client._loop._driver._stop_file], [], [], 0)
print(readable)
"""


@pytest.mark.usefixtures("agent")
def test_a_forked_child_never_wakes_the_parents_loop(endpoint: str, tmp_path: Path) -> None:
    assert run(tmp_path, IDLE, endpoint) == (0, ["[]"], "")


FORK_EMBEDDED = """
settings = EdgeSettings(
    agent=AgentGroup(models=(sys.argv[1],)), execution=Execution(threads=int(sys.argv[2]), slowdown=200.0)
)
client = Client.embedded(settings)
print(kind(client.infer(IMAGE, LONG_MS)), flush=True)
futures = [client.submit(IMAGE, LONG_MS) for _ in range(4)]
child = os.fork()
if child == 0:
    try:
        client.infer(IMAGE)
    except HeadtailError:
        print("refused", flush=True)
    del client, futures
    gc.collect()
    mine = Client.embedded(settings)
    print("own", kind(mine.infer(IMAGE, LONG_MS)))
    raise SystemExit("the child's own word")
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print({kind(future.result()) for future in futures})
"""


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_forked_child_of_an_application_with_its_agent_inside_ends_as_it_should(
    bundle: Path, tmp_path: Path, threads: str
) -> None:
    """onnxruntime would wait there for threads that it had in the parent, or crash in joining them."""
    status, said, errors = run(tmp_path, FORK_EMBEDDED, str(bundle), threads)
    assert (status, errors) == (0, "the child's own word\n")
    assert said == ["Answer", "refused", "own Answer", "child 1", "{'Answer'}"]


MULTI = """
def work(endpoint, client=None):
    if client is not None:
        try:
            client.infer(IMAGE)
        except HeadtailError as error:
            print("refused", flush=True)
    mine = Client(endpoint)
    print("own", kind(mine.infer(IMAGE, LONG_MS)), flush=True)

if __name__ == "__main__":
    client = Client(sys.argv[1])
    assert client.wait_attached(30)
    context = multiprocessing.get_context(sys.argv[2])
    given = (client,) if sys.argv[2] == "fork" else ()
    child = context.Process(target=work, args=(sys.argv[1], *given))
    child.start()
    child.join()
    print("child", child.exitcode)
    if sys.argv[2] == "spawn":
        try:
            context.Process(target=work, args=(sys.argv[1], client)).start()
        except HeadtailError as error:
            print(str(os.getpid()) in str(error), "make one there" in str(error))
    print("parent", kind(client.infer(IMAGE, LONG_MS)))
"""


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("fork", ["refused", "own Answer", "child 0", "parent Answer"]),
        ("spawn", ["own Answer", "child 0", "True True", "parent Answer"]),
    ],
)
def test_processes_of_multiprocessing_make_a_client_of_their_own(
    endpoint: str, tmp_path: Path, way: str, said: list[str]
) -> None:
    status, found, errors = run(tmp_path, MULTI, endpoint, way)
    assert (status, found) == (0, said), errors
    assert way == "spawn" or errors == ""


EMBEDDED = """
settings = EdgeSettings(agent=AgentGroup(models=(sys.argv[1],)), execution=Execution(slowdown=200.0))
client = Client.embedded(settings)
"""
REMOTE = "client = Client('ipc://' + sys.argv[2])\n"
ENDS = {
    "with requests open": "futures = [client.submit(IMAGE, LONG_MS) for _ in range(4)]",
    "closed with requests open": "futures = [client.submit(IMAGE, LONG_MS) for _ in range(4)]\nclient.close()",
    "with a stream and its frames open": "s = client.stream(period_ms=33)\nf = [s.submit(IMAGE) for _ in range(4)]",
    "with a daemon thread that waits": """
asked = threading.Event()
def wait():
    client.submit(IMAGE, LONG_MS).add_done_callback(lambda done: None)
    asked.set()
    client.infer(IMAGE, LONG_MS)
threading.Thread(target=wait, daemon=True).start()
asked.wait()
""",
    "with daemon threads that go on asking": """
begun = threading.Barrier(4)
def ask():
    begun.wait()
    while True:
        client.infer(IMAGE, 1)
for _ in range(3):
    threading.Thread(target=ask, daemon=True).start()
begun.wait()
""",
    "with a thread that waits to its deadline": "threading.Thread(target=client.infer, args=(IMAGE, 300)).start()",
    "with a callback that asks again": """
future = client.submit(IMAGE, LONG_MS)
future.add_done_callback(lambda done: client.submit(IMAGE, LONG_MS))
""",
    "in a cycle that the collector has not seen": """
class Holder: pass
holder = Holder()
holder.own, holder.client, holder.future = holder, client, client.submit(IMAGE, LONG_MS)
del holder, client
""",
    "with a task that was never awaited": """
async def main():
    task = asyncio.create_task(client.ainfer(IMAGE, LONG_MS))
    await asyncio.sleep(0)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("form", ["embedded", "remote"])
@pytest.mark.parametrize("way", ENDS)
def test_an_interpreter_ends_quietly(bundle: Path, tmp_path: Path, form: str, way: str) -> None:
    program = (EMBEDDED if form == "embedded" else REMOTE) + ENDS[way]
    assert run(tmp_path, program, str(bundle), f"{tmp_path}/nobody") == (0, [], "")


def test_an_interpreter_that_ends_by_an_error_tells_of_that_error_only(bundle: Path, tmp_path: Path) -> None:
    program = EMBEDDED + "future = client.submit(IMAGE, LONG_MS)\nraise SystemExit('enough')\n"
    assert run(tmp_path, program, str(bundle)) == (1, [], "enough\n")
