"""Measures what tracing costs the traced program, beside bpftrace doing the same job: see `bench.rs`.

A round lets one program work untraced, with each tracer in turn, and only ratios within a round are compared: the
machine's speed drifts more than the tracers differ. Time is CPU time of the traced process, the least of a few times in a
row. What a goal asks for and is not reached is said so.
"""
import atexit
import csv
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

RTRACE, NOTHING, FOLDER, ROUNDS = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
ROOT = Path(__file__).parents[2]
TRACE = FOLDER / "trace"
# How often a program works to show how quick it is.
WORKS = 5
# bpftrace takes and leaves each function's probes one by one, so of each library both tracers probe only so many
# functions, which the program calls most.
FUNCTIONS = 20
# Seconds after which a program hangs that has said nothing.
PATIENCE = 120
# Seconds after which nothing of what was done before goes on.
CALM = 1
# The lines of the table: what, unit, values of the rounds, most that is asked for, remark.
LINES = []


def line(what, unit, values, goal=None, remark=""):
    LINES.append((what, unit, values, goal, remark))


def median(values):
    return statistics.median(values)


class Program:
    """A program that gets lines on its standard input, and says on one output how far it is."""

    def __init__(self, command, output="stdout", env=None):
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.PIPE}
        pipes[output] = subprocess.PIPE
        env = {**os.environ, **(env or {})}
        command = [str(word) for word in command]
        self.process = subprocess.Popen(command, text=True, errors="replace", env=env, process_group=0, **pipes)
        atexit.register(self.process.kill)
        self.output, self.pid = getattr(self.process, output), self.process.pid

    def hear(self, text):
        """The lines until one that has the text."""
        lines = []
        while not (lines and text in lines[-1]):
            signal.alarm(PATIENCE)
            said = self.output.readline()
            signal.alarm(0)
            if not said:
                sys.exit(f"failed to hear `{text}` of `{self.process.args[0]}`: {' / '.join(lines)}")
            lines.append(said.strip())
        return lines

    def tell(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def end(self, by=None):
        """Waits for its end, by this signal or by itself; gives what it said before."""
        if by is not None:
            self.process.send_signal(by)
        said = self.process.communicate(timeout=PATIENCE)
        atexit.unregister(self.process.kill)
        return next(text for text in said if text is not None).splitlines()


class Worker(Program):
    """A program that works once for each line that it gets, and says `done` after it."""

    def __init__(self, command, work, env=None, child_of=None):
        super().__init__(command, env=env)
        self.task = work
        if child_of is not None:
            self.pid = child_with(self.pid, child_of)
        self.work()

    def work(self):
        """Lets it work once; gives the CPU time of all its threads, in nanoseconds."""
        before = cpu_time(self.pid)
        self.tell(self.task + "\n")
        self.hear("done")
        return cpu_time(self.pid) - before

    def quickest(self):
        """On a machine that is shared, the others were held up, for parts of a second, by what no tracer did."""
        return min(self.work() for _ in range(WORKS))


def cpu_time(pid):
    # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime_ns((~pid << 3) | 2)


def child_with(pid, program):
    """The child of a process that executes this program."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if os.readlink(f"/proc/{child}/exe") == str(program):
                return int(child)
        time.sleep(0.01)
    sys.exit(f"failed to see process {pid} start `{program}`")


def own(work, env=None):
    return Worker([compiled("bench", "-pthread", "-fopenmp", "-lfftw3", "-lm")], work, env)


def compiled(name, *options):
    """One of the programs of the tests."""
    program, source = FOLDER / name, ROOT / f"tests/targets/{name}.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["gcc", "-O2", "-rdynamic", "-o", program, source, *options], check=True)
    return program


@dataclass(frozen=True)
class Selection:
    """What is traced: libraries as rtrace names them, symbols, and the file that bpftrace probes."""

    libraries: tuple
    functions: tuple = ()
    file: str = ""
    options: tuple = ()

    def words(self):
        libraries = [word for library in self.libraries for word in ("--lib", library)]
        return libraries + [word for function in self.functions for word in ("--func", function)]

    def plan(self, pid):
        command = [RTRACE, "plan", "-p", str(pid), "--format", "json", *self.words()]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["libraries"][0]

    def sites(self, pid):
        """The sites of rtrace's entry probes."""
        found = {function.get("entry_site") for function in self.plan(pid)["functions"]}
        return sorted(found - {None})


PUSHES = Selection(("exe",), ("pushes",), file=str(FOLDER / "bench"))


@contextmanager
def tracing(command, ready, output="stdout", env=None, by=signal.SIGINT):
    tracer = Program(command, output, env)
    tracer.hear(ready)
    yield
    tracer.end(by)


def rtrace(pid, selection):
    shutil.rmtree(TRACE, ignore_errors=True)
    budget = () if "--budget" in selection.options else ("--budget", "none")
    options = [*selection.words(), *selection.options, *budget]
    command = [RTRACE, "attach", "--no-tui", "-o", TRACE, *options, "-p", pid]
    return tracing(command, "rtrace: recording ", output="stderr")


def nothing(pid, file, sites):
    """Programs that do nothing, at these sites."""
    return tracing([NOTHING, pid, file, *sites], "ready", by=signal.SIGKILL)


def bpftrace(pid, selection):
    """Counts calls and adds up the times of each function."""
    program = ""
    for n, function in enumerate(selection.functions):
        place = f"{selection.file}:{function}"
        program += f"uprobe:{place} {{ @f{n}[tid] = nsecs; }} uretprobe:{place} /@f{n}[tid]/ {{ @n_f{n} = count(); "
        program += f"@t_f{n} = sum(nsecs - @f{n}[tid]); delete(@f{n}[tid]); }} "
    # Nothing is printed before all probes are in.
    program += 'interval:ms:100 { printf("ready\\n"); }'
    return tracing(["bpftrace", "-p", pid, "-e", program], "ready", env={"BPFTRACE_MAX_PROBES": "4096"})


def summary():
    """What the end of the trace says of it, with the size of its calls and their values."""
    found = json.loads((TRACE / "trace.json").read_text())["summary"]
    files = [file for folder in ("calls", "values") for file in (TRACE / folder).rglob("*.parquet")]
    lost = sum(loss["count"] for loss in found["losses"])
    return {**found, "lost": lost, "bytes": sum(file.stat().st_size for file in files)}


def report(*options):
    command = [RTRACE, "report", TRACE, *options, "--format", "csv"]
    text = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    return list(csv.DictReader(text.splitlines()))


def most_called(subject, library):
    """The functions of a library that the program calls most."""
    every = Selection((library,))
    with rtrace(subject.pid, every):
        subject.work()
    functions = [row["function"] for row in report("--sort", "calls")][:FUNCTIONS]
    if not functions:
        sys.exit(f"failed to see a call of `{library}`")
    return replace(every, functions=tuple(functions), file=every.plan(subject.pid)["path"])


def tight_loop():
    """The cost of a call where only the tracer works, and how it grows with threads: that of programs that do nothing
    does, too, as far as CPUs share what they work with. One thread, two and many make so many calls together: so many
    that it does not matter what a thread costs that begins."""
    calls, loops = 400_000, ["loop 1 400000", "loop 2 200000", "loop 64 6250"]
    subject, values, lost = own(loops[0]), defaultdict(list), 0
    sites = PUSHES.sites(subject.pid)

    def times(tracer=None, without=(0, 0, 0)):
        found = []
        for subject.task, least in zip(loops, without):
            found.append(subject.quickest() - least)
        return found

    for _ in range(ROUNDS):
        untraced = times()
        with nothing(subject.pid, PUSHES.file, sites):
            least = times(without=untraced)
        with bpftrace(subject.pid, PUSHES):
            peer = times(without=untraced)
        with rtrace(subject.pid, PUSHES):
            ours = times(without=untraced)
        lost += summary()["lost"]
        values["floor"].append(ours[0] / least[0])
        values["of a call"].append(ours[0] / calls)
        values["of nothing"].append(least[0] / calls)
        values["peer"].append(ours[0] / peer[0])
        for place, name in [(1, "two"), (2, "many")]:
            values[name].append(ours[place] / ours[0])
            values[f"floor of {name}"].append(least[place] / least[0])
    middle = {name: median(found) for name, found in values.items()}
    of_one = f"{middle['of a call']:.0f} ns a call, empty program {middle['of nothing']:.0f}"
    floors = [f"empty programs: {middle[f'floor of {name}']:.2f}" for name in ("two", "many")]
    of_two = f"{floors[0]}; {lost} calls lost in all rounds, including those of 64 threads"
    line("function with push, tight loop", "× empty program", values["floor"], 1.25, of_one)
    line("function with push, tight loop", "× bpftrace", values["peer"])
    line("two threads in a tight loop", "× one thread", values["two"], 1.15, of_two)
    line("64 threads in a tight loop", "× one thread", values["many"], 1.1, floors[1])


def of_each_call(subject, options):
    """Nanoseconds of a call of the loop, and bytes of its record."""
    with rtrace(subject.pid, replace(PUSHES, options=options)):
        quickest = subject.quickest()
    recorded = summary()
    return quickest / 200_000, recorded["bytes"] / recorded["calls"]


# Kinds of counters, with some that every machine has.
COUNTERS = {
    "a per-thread counter": "page-faults",
    "the CPU time": "task-clock",
    "a per-CPU event": "cpu-clock",
    "two per-CPU events": "cpu-clock,alignment-faults",
    "eight counters": "task-clock,page-faults,minor-faults,major-faults,context-switches,cpu-migrations,cpu-clock,"
    "alignment-faults",
}


def counters():
    """What each kind of counter adds to a call."""
    subject, added = own("loop 1 200000"), defaultdict(list)
    for _ in range(ROUNDS):
        without, _ = of_each_call(subject, ("--counters", ""))
        for what, names in COUNTERS.items():
            added[what].append(of_each_call(subject, ("--counters", names))[0] - without)
    for what, names in COUNTERS.items():
        line(f"added per call by {what}", "ns", added[what], remark=f"`--counters {names}`")


# What is captured, with the most nanoseconds and bytes that it may add.
CAPTURES = {
    "three integers": ('"a", "b", "c"', None, 5),
    "six integers": ('"a", "b", "c", "d", "e", "text"', 80, None),
    "a text of 16 bytes": ('"text:text(16)"', 120, None),
}


def values():
    """What values add to a call, to its time and to its record."""
    subject, added, table = own("loop 1 200000"), defaultdict(list), FOLDER / "values.toml"
    prototype = "void pushes(long a, long b, long c, long d, long e, const char *text)"
    for _ in range(ROUNDS):
        without = of_each_call(subject, ())
        for what, (captures, *_) in CAPTURES.items():
            table.write_text(f'[[function]]\nc = "{prototype}"\ncapture = [{captures}]\n')
            added[what].append([a - b for a, b in zip(of_each_call(subject, ("--args-from", str(table))), without)])
    for what, (captures, most_time, most_bytes) in CAPTURES.items():
        times, sizes = zip(*added[what])
        line(f"added per call by {what}", "ns", times, most_time, f"`capture = [{captures}]`")
        line(f"added to a record by {what}", "bytes", sizes, most_bytes, f"`capture = [{captures}]`")


PYTHON = """import sys, zlib
text = b'some text that is packed ' * 40
for line in sys.stdin:
    for i in range(2000):
        packed = zlib.compress(text, 6)
        zlib.crc32(packed)
        zlib.adler32(zlib.decompress(packed))
    print('done', flush=True)"""
CERTIFICATES = """import ssl, sys
bundle = open('/etc/ssl/certs/ca-certificates.crt').read()
end = '-----END CERTIFICATE-----'
few = end.join(bundle.split(end)[:5]) + end
for line in sys.stdin:
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=few)
    print('done', flush=True)"""


def python(code):
    return lambda: Worker(["/usr/bin/python3", "-u", "-c", code], "go")


def sqlite():
    """Fills a table and asks about it."""
    text = "create table if not exists t(a integer primary key, b text, c real);\ndelete from t;\n"
    for n in range(500):
        text += f"insert into t values({n}, 'text {n * 7 % 101}', {n % 13}.5);\n"
    statements = FOLDER / "statements.sql"
    statements.write_text(text + "select count(*), sum(c) from t where b like '%7%';\n.print done\n")
    return Worker(["/usr/bin/sqlite3", "-batch", ":memory:"], f".read '{statements}'")


def mkl():
    """Intel's MKL, of which every function begins with `endbr64`: from the Python package index, with the layer of
    threads that needs no other package."""
    environment = FOLDER / "mkl"
    if not (environment / "lib/libmkl_rt.so.3").exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", environment], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "mkl==2026.2.0"]
        subprocess.run([environment / "bin/python", *install], check=True)
    layer = {"MKL_THREADING_LAYER": "SEQUENTIAL", "MKL_NUM_THREADS": "1"}
    return own("mkl 1 4000", {"LD_LIBRARY_PATH": str(environment / "lib"), **layer})


FFTW, GOMP = "fftw 1 100", "gomp 1 20000"
# Of each library its program, how much of what bpftrace adds rtrace may add, and whether the trace's size has a goal.
LIBRARIES = {
    "libz.so.1": (python(PYTHON), 0.5, True),
    "libfftw3.so.3": (lambda: own(FFTW), 0.5, True),
    "libsqlite3.so.0": (sqlite, 0.5, False),
    "libgomp.so.1": (lambda: own(GOMP), 0.2, False),
    "libmkl_rt.so.3": (mkl, 0.2, False),
    "libmkl_intel_lp64.so.3": (mkl, 0.2, False),
}


def libraries():
    """What rtrace adds to the calls of libraries' functions in programs that use them, beside what bpftrace adds, and
    beside what the kernel itself takes for the same probes."""
    for name, (start, goal, is_sized) in LIBRARIES.items():
        what, unit = f"time added to calls of {name}", "× bpftrace"
        try:
            subject = start()
        except subprocess.CalledProcessError as error:
            line(what, unit, [], goal, str(error))
            continue
        selection, found = most_called(subject, name), defaultdict(list)
        sites = selection.sites(subject.pid)
        for _ in range(ROUNDS):
            untraced = subject.quickest()
            with bpftrace(subject.pid, selection):
                peer = subject.quickest() - untraced
            with nothing(subject.pid, selection.file, sites):
                found["floors"].append((subject.quickest() - untraced) / peer)
            with rtrace(subject.pid, selection):
                ours = subject.quickest() - untraced
            recorded = summary()
            found["ratios"].append(ours / peer)
            found["costs"].append(ours * WORKS / recorded["calls"])
            found["sizes"].append(recorded["bytes"] / recorded["calls"])
            if name == "libgomp.so.1":
                found["stubs"].append((quickest_with_stubs(selection, GOMP) - untraced) / peer)
        calls, functions = recorded["calls"], len(selection.functions)
        remark = f"floor {median(found['floors']):.2f}; {calls} calls of {functions} functions, "
        remark += f"{median(found['costs']):.0f} ns each, {recorded['lost']} lost"
        line(what, unit, found["ratios"], goal, remark)
        if is_sized:
            line(f"bytes on disk per call of {name}", "bytes", found["sizes"], 8)
        if found["stubs"]:
            line(f"{what} by `run --stubs`", unit, found["stubs"], goal)


def quickest_with_stubs(selection, work):
    """Of a program of its own, with stubs for what must be single-stepped."""
    shutil.rmtree(TRACE, ignore_errors=True)
    program = PUSHES.file
    command = [RTRACE, "run", "--no-tui", "-o", TRACE, *selection.words(), "--stubs", "--", program]
    subject = Worker(command, work, child_of=program)
    quickest = subject.quickest()
    subject.end()
    return quickest


# Of each library those of its functions that are traced, all without any, its program, and the microseconds of CPU time
# that may be added to a call.
PROGRAMS = {
    "libsqlite3.so.0": (("sqlite3_*",), sqlite, 2.5),
    "libcrypto.so.3": ((), python(CERTIFICATES), 3),
    "libz.so.1": ((), python(PYTHON), 1.4),
    "libfftw3.so.3": (("fftw_execute", "fftw_dft_solve"), lambda: own(FFTW), 3),
}


def programs():
    """Whole libraries in real programs: what a recording adds to each call, and what of it the kernel takes for the same
    probes."""
    emulated, stepped = least()
    for library, (functions, start, goal) in PROGRAMS.items():
        subject, every, found = start(), Selection((library,), functions), defaultdict(list)
        few, file, sites = most_called(subject, library), every.plan(subject.pid)["path"], every.sites(subject.pid)
        for _ in range(ROUNDS):
            untraced = subject.quickest()
            with rtrace(subject.pid, every):
                added = subject.quickest() - untraced
            recorded = summary()
            calls, at_returns = recorded["calls"], recorded["return_sites"]
            of_call = WORKS / calls / 1000
            found["ours"].append(added * of_call)
            found["in vain"].append(at_returns["unmatched"] / calls)
            single = at_returns["single_stepped"]
            found["returns"].append(((at_returns["hits"] - single) * emulated + single * stepped) / calls)
            found["untimed"].append(100 * recorded["unseen"] / calls)
            with nothing(subject.pid, file, sites):
                found["entries"].append((subject.quickest() - untraced) * of_call)
            with rtrace(subject.pid, few):
                by_us = subject.quickest() - untraced
            with bpftrace(subject.pid, few):
                found["peers"].append(by_us / (subject.quickest() - untraced))
        of = {name: median(values) for name, values in found.items()}
        remark = f"floor {of['entries'] + of['returns']:.2f}: entries {of['entries']:.2f}, return sites "
        remark += f"{of['returns']:.2f}; {calls} calls; {of['untimed']:.2f} % not timed; {of['in vain']:.2f} hits in "
        remark += f"vain per call; its {len(few.functions)} most-called functions: {of['peers']:.2f} × bpftrace"
        line(f"added to a call of {(*functions, library)[0]}", "µs", found["ours"], goal, remark)


def least():
    """Microseconds that an empty program takes at an instruction that the kernel emulates, and at one that it
    single-steps: the push at which a function begins, and what follows that."""
    subject = own("loop 1 400000")
    entry = PUSHES.sites(subject.pid)[0]
    costs = {entry: [], entry + 1: []}
    for _ in range(ROUNDS):
        untraced = subject.quickest()
        for site, found in costs.items():
            with nothing(subject.pid, PUSHES.file, [site]):
                found.append((subject.quickest() - untraced) / 400_000 / 1000)
    return [median(found) for found in costs.values()]


# What the dynamic linker loads before anything else. Two of these have about the number of functions that the goals
# speak of.
QT = {"LD_PRELOAD": "libQt5Core.so.5:libQt5Gui.so.5:libQt5Widgets.so.5"}
TWO, ALL = Selection(("libQt5Core.so.5", "libQt5Widgets.so.5")), Selection(("libQt5*",))


def many_functions():
    """Attaching to very many functions: how long it takes, what it does to the calls of one, and for how long it holds
    the program up."""
    subject, ratios = own("loop 1 200000", QT), []
    seconds, pauses = {TWO: [], ALL: []}, ([], [])
    for _ in range(ROUNDS):
        untraced, costs = subject.quickest(), []
        for selection in (Selection(("exe",)), Selection(("exe", *ALL.libraries))):
            with rtrace(subject.pid, selection):
                costs.append(subject.quickest() - untraced)
        ratios.append(costs[1] / costs[0])
        for selection, times in seconds.items():
            times.append(attached(subject.pid, selection))
        paused = Program([compiled("pauses")], env=QT)
        longest_pause(paused)
        time.sleep(CALM)
        pauses[0].append(longest_pause(paused))
        attached(paused.pid, ALL)
        pauses[1].append(longest_pause(paused))
        paused.end(signal.SIGKILL)
    line("a call with all of Qt5 attached", "× only its own functions attached", ratios, 1.1)
    for times, goal in zip(seconds.values(), (0.5, None)):
        attach, detach, (count, *_) = zip(*times)
        remark = "from rtrace's start until it says that it records"
        line(f"attach to {count} functions of Qt5", "s", attach, goal, remark)
        line(f"detach from {count} functions of Qt5", "s", detach, goal, "from Ctrl-C to rtrace's end")
    remark = "between two looks at the clock, with a page mapped in between; "
    remark += f"{median(pauses[0]):.2f} in a second without rtrace"
    line("longest pause of a program while all of Qt5 is attached and detached", "ms", pauses[1], remark=remark)


def attached(pid, selection):
    """Seconds to attach and to detach, and the number of functions. The kernel goes on taking probes out after their
    program has ended, and rtrace measures what calls cost after it has begun to record."""
    time.sleep(CALM)
    start = time.monotonic()
    with rtrace(pid, selection):
        attach = time.monotonic() - start
        time.sleep(CALM)
        start = time.monotonic()
    return attach, time.monotonic() - start, summary()["regions"]


def longest_pause(paused):
    """Since the program was last asked, in milliseconds; waiting for a CPU is none."""
    paused.tell("\n")
    return float(paused.hear(" ")[0].split()[1]) / 1e6


def budget():
    """What `--budget` promises of a tight loop of 50 ns: that it is slowed down by no more, soon and for good, and that
    the number of calls is still known. The program counts its calls, and tells each quarter of a second what one takes of
    its CPU time. In a round it runs untraced, with a budget from its begin to its end, and untraced again."""
    goal, settled = 5, 2_000
    selection = Selection(("exe",), ("hot", "rare*"), options=("--budget", f"{goal}%"))
    found, within = defaultdict(list), 0
    for _ in range(ROUNDS):
        untraced, _ = told_by_budget("1.5", 0)
        told, calls = told_by_budget("6", settled, selection)
        untraced += told_by_budget("1.5", 0)[0]
        native = statistics.mean(untraced)
        found["native"].append(native)
        for name, time in [("mean", statistics.mean(told)), ("highest", highest(told)), ("noise", highest(untraced))]:
            found[name].append((time / native - 1) * 100)
        row = next(row for row in report() if row["function"] == "hot")
        of = {name: float(row[name] or 0) for name in ("calls", "counted", "estimated", "estimated_margin")}
        within += of["calls"] + of["counted"] + of["estimated"] - of["estimated_margin"] <= calls
    remark = f"of a function that takes {median(found['native']):.0f} ns untraced"
    line("slowdown of a tight loop by `--budget 5%`, after 2 s", "%", found["mean"], goal, remark)
    remark = f"untraced, the highest is {median(found['noise']):.1f} % above the mean; what is said of the number of its "
    remark += f"calls was true in {within} of {ROUNDS} rounds"
    line("its highest half-second after that", "%", found["highest"], goal, remark)


def told_by_budget(seconds, since, selection=None):
    """The times of a call in all quarters of a second that began so many milliseconds after the begin, and the number
    of calls."""
    program = Program([compiled("budget", "-pthread"), "1", seconds])
    program.hear("ready")
    program.tell("\n")
    if selection is None:
        lines = program.hear("truth share")
    else:
        with rtrace(program.pid, selection):
            lines = program.hear("truth share")
    rates = [(float(end), float(took)) for word, end, took in map(str.split, lines) if word == "rate"]
    begins = [0, *(end for end, _ in rates)]
    calls = next(int(said.split()[2]) for said in lines if said.startswith("truth hot"))
    program.end()
    return [took for (_, took), begin in zip(rates, begins) if begin >= since], calls


def highest(times):
    """The mean of the two quarters in a row in which a call took longest."""
    return max(map(statistics.mean, zip(times, times[1:])))


def page():
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((text.partition(": ")[2] for text in cpus if text.startswith("model name")), "a CPU without a name")
    version = subprocess.run(["bpftrace", "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    text = f"""# Benchmarks

Written by `cargo xtask bench` on Linux {platform.release()}, {cpu}, with {version}. Values are the median of {ROUNDS} paired \
rounds; `rounds` has the lowest and the highest. In each round the process works {WORKS} times untraced and {WORKS} times \
with each tracer, and the fastest run counts. Times are the CPU time that a tracer adds to the traced process. bpftrace \
counts calls and sums up times per function; rtrace records each call. For each library, both probe the {FUNCTIONS} \
functions that are called most. The floor is the cost of empty BPF programs at rtrace's entry sites, in the unit of the \
value. In what is added to a call it has the return sites, too: as many hits as there were, each at what an empty program \
costs at an instruction that the kernel emulates, or single-steps.

| what | value | unit | rounds | goal | |
|---|---|---|---|---|---|
"""
    for what, unit, values, goal, remark in LINES:
        value = f"{median(values):.2f}" if values else "not measured"
        rounds = f"{min(values):.2f} to {max(values):.2f}" if values else ""
        asked = "" if goal is None else f"at most {goal:g}"
        if asked and values:
            asked += ": reached" if median(values) <= goal else ": **missed**"
        text += f"| {what} | {value} | {unit} | {rounds} | {asked} | {remark} |\n"
    return text


PARTS = {
    "loop": tight_loop,
    "counters": counters,
    "values": values,
    "libraries": libraries,
    "programs": programs,
    "many": many_functions,
    "budget": budget,
}


def hangs(*_):
    sys.exit(f"failed to hear a program within {PATIENCE} s: it hangs")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, hangs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    chosen, start = sys.argv[5:], time.monotonic()
    for name, measure in PARTS.items():
        if not chosen or name in chosen:
            measure()
    print(f"\n{page()}\nmeasured in {time.monotonic() - start:.0f} s")
    if not chosen:
        (ROOT / "docs/benchmarks.md").write_text(page())
