"""Models of bench_models by LINE (`line_solver`, its own Python code): a line of JSON each, with CPU time without
start-up. Functions of its libraries are called where there is one, so that no time goes into building a model."""

import json
import os
import signal
import time

import numpy as np

# A warning about a solver is no answer.
import warnings

warnings.simplefilter("ignore")

from line_solver.api import fj, pfqn, polling, qsys

QUICK = "QUICK" in os.environ
LIMIT = 300


def late(*_):
    raise TimeoutError(f"more than {LIMIT} s of CPU time")


signal.signal(signal.SIGPROF, late)


def row(name, solve, slow=False):
    """Solves it until 0.2 CPU seconds are gone, once where it is slow; `solve` returns X and R of each class."""
    if slow and QUICK:
        return
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        if not slow:
            solve()
        times, before, seconds = 0, time.process_time(), 0
        while seconds < 0.2:
            throughput, response = solve()
            times += 1
            seconds = time.process_time() - before
        flat = lambda values: [float(value) for value in np.ravel(values)]
        answer = {"cpu_ms": seconds / times * 1e3, "throughput": flat(throughput), "response": flat(response)}
    except Exception as problem:  # Whatever a peer says is its answer.
        answer = {"problem": f"{type(problem).__name__}: {problem}"}
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps({"id": name, **answer}), flush=True)


def built(build):
    """What solves the model that is built first, without the time that this takes."""
    try:
        return build()
    except Exception as problem:
        reason = problem

        def refuses():
            raise reason

        return refuses


def demands_20x50():
    demands = 0.01 * (1 + (7 * np.arange(1, 21) + 3 * np.arange(1, 51)[:, None]) % 11)
    return demands, 5 + 7 * np.arange(1, 21) % 19, np.ones(20)


def mva(demands, population, think):
    x, _, _, _, residence, _, _ = pfqn.pfqn_mva(np.array(demands), np.array(population), np.array(think))
    return x, np.sum(residence, axis=0)


def schweitzer():
    demands, population, think = demands_20x50()
    x, _, _, residence, _ = pfqn.pfqn_bs(demands, population, think, 1e-9, 10000)
    return x, population / np.ravel(x) - think


def linearizer():
    demands, population, think = demands_20x50()
    _, _, _, _, response, x, _ = pfqn.pfqn_linearizer(demands, population, think, ["PS"] * 50, 1e-9, 10000)
    return x, response


def load_dependent(demands, population, think, rates):
    x = pfqn.pfqn_mvald(np.array(demands), np.array(population), np.array(think), np.array(rates))[0]
    return x, np.array(population) / np.ravel(x) - think


def servers(*counts, most):
    return [[min(n, count) for n in range(1, most + 1)] for count in counts]


def jackson():
    x, number, *_ = pfqn.pfqn_mvams([3.0], [[0.16], [0.14], [0.24]], [np.inf], [0.0])
    return x, [number.sum() / 3.0]


def mixed():
    demands = [[0.1, 0.2, 0.3], [0.15, 0.1, 0.4]]
    x, number, *_ = pfqn.pfqn_mvams([2.0, 0.0, 0.0], demands, [np.inf, 20, 3], [0.0] * 3)
    return x, np.sum(number, axis=0) / np.ravel(x)


MMPP = lambda low, high: (np.array([[-low - 0.1, 0.1], [0.1, -high - 0.1]]), np.diag([low, high]))
E2 = lambda mean: ([1.0, 0.0], [[-2 / mean, 2 / mean], [0.0, -2 / mean]])


def balanced(mean, scv):
    """Two exponential branches with equal shares of the mean."""
    p = 0.5 * (1 + np.sqrt((scv - 1) / (scv + 1)))
    return [p, 1 - p], [[-2 * p / mean, 0.0], [0.0, -2 * (1 - p) / mean]]


def renewal(shape):
    start, rates = np.array(shape[0]), np.array(shape[1])
    return rates, np.outer(-rates.sum(axis=1), start)


def phases(arrivals, rate, service, count):
    found = qsys.qsys_mapphc(*arrivals, *service, count)
    return [rate], [found.meanSojournTime]


def number(found, rate):
    return [rate], [found["W"]]


def impatient(found):
    return [found["throughput"]], [found["meanNumber"] / (found["throughput"] + found["abandonRate"])]


def priorities():
    rates = np.array([0.3, 0.3, 0.1])
    response, _ = qsys.qsys_mg1_prio(rates, np.array([1.0, 1.0, 0.5]), np.ones(3))
    return rates, response


def weights():
    rates = np.array([0.4, 0.3])
    response, _ = qsys.qsys_mm1_dps(rates, np.ones(2), np.array([3.0, 1.0]))
    return rates, response


def polled(by):
    point = lambda rate: (np.array([[-rate]]), np.array([[rate]]))
    rates = [0.3, 0.2, 0.1, 0.05]
    waits = by([point(rate) for rate in rates], [point(1.0)] * 4, [point(10.0)] * 4)
    return rates, np.array(waits) + 1.0


def retrials():
    arrivals = {"D0": np.array([[-0.7]]), "D1": np.array([[0.7]])}
    service = {"beta": np.array([1.0]), "S": np.array([[-1.0]])}
    found = qsys.qsys_bmapphnn_retrial(arrivals, service, 1, {"alpha": 0.5, "gamma": 0.0, "p": 0.0, "R": 0})
    return [0.7], [(found.L_orbit + found.N_server) / 0.7]


def open_row():
    from line_solver import MVA, Erlang, HyperExp, Network, OpenClass, Queue, SchedStrategy, Sink, Source

    model = Network("row")
    source = Source(model, "in")
    queues = [Queue(model, name, SchedStrategy.FCFS) for name in "abc"]
    sink = Sink(model, "out")
    customers = OpenClass(model, "c")
    source.set_arrival(customers, Erlang.fit_mean_and_order(1.0, 2))
    queues[0].set_service(customers, HyperExp.fit_mean_and_scv_balanced(0.8, 4.0))
    queues[1].set_service(customers, Erlang.fit_mean_and_order(0.7, 2))
    queues[2].set_service(customers, HyperExp.fit_mean_and_scv_balanced(0.85, 2.0))
    model.link(Network.serial_routing([source, *queues, sink]))
    return lambda: table(MVA(model, method="qna", verbose=False), [queue.name for queue in queues])


def table(solver, stations):
    found = solver.avg_table()
    found = getattr(found, "data", found)
    rows = found[found["Station"].isin(stations)]
    return [rows["Tput"].iloc[0]], [rows["RespT"].sum()]


def layered(processors, tasks, entries):
    """Builds a layered model: processors (servers, discipline), tasks (processor, copies, think time), entries (task,
    demand, calls, forwards)."""
    from line_solver import LN, Activity, Entry, Exp, Immediate, LayeredNetwork, Processor, SchedStrategy, Task

    model = LayeredNetwork("layered")
    places = {name: Processor(model, name, count, SchedStrategy[how]) for name, (count, how) in processors.items()}
    work = {}
    for name, (place, count, think) in tasks.items():
        kind = SchedStrategy.FCFS if think is None else SchedStrategy.REF
        work[name] = Task(model, name, count, kind).on(places[place])
        if think is not None:
            work[name].set_think_time(Exp.fit_mean(think))
    points = {name: Entry(model, f"{name} entry").on(work[task]) for name, (task, *_) in entries.items()}
    for name, (task, demand, calls, forwards) in entries.items():
        time_s = Exp.fit_mean(demand) if demand else Immediate()
        step = Activity(model, f"{name} step", time_s).on(work[task]).bound_to(points[name])
        for to, mean in calls.items():
            step.synch_call(points[to], mean)
        if tasks[task][2] is None:
            step.replies_to(points[name])
        for to, share in forwards.items():
            points[name].forward(points[to], share)
    (users, (_, count, think)), *_ = [item for item in tasks.items() if item[1][2] is not None]

    def solve():
        found = LN(model, verbose=False).avg_table()
        found = getattr(found, "data", found)
        x = found[found["Node"] == users]["Tput"].iloc[0]
        return [x], [count / x - think]

    return solve


def tiers():
    return layered(
        {"desks": (np.inf, "INF"), "web machine": (2, "PS"), "disk": (1, "FCFS")},
        {"users": ("desks", 50, 2.0), "web": ("web machine", 8, None), "database": ("disk", 3, None)},
        {
            "user": ("users", 0, {"page": 1}, {}),
            "page": ("web", 0.06, {"rows": 2}, {}),
            "rows": ("database", 0.015, {}, {}),
        },
    )


def web():
    one = (1, "FCFS")
    return layered(
        {"desks": (np.inf, "INF"), "web cpu": (1, "PS"), "web disk": one, "database cpu": one, "database disk": one},
        {
            "users": ("desks", 225, 3000.0),
            "protocol": ("web cpu", 1, None),
            "web": ("web cpu", 10, None),
            "programs": ("web cpu", 3, None),
            "disk": ("web disk", 1, None),
            "database": ("database cpu", 1, None),
            "files": ("database disk", 1, None),
        },
        {
            "user": ("users", 0, {"protocol": 1}, {}),
            "protocol": ("protocol", 6.2, {}, {"page": 1.0}),
            "page": ("web", 9.821, {"disk": 1.51, "update": 0.04, "read": 0.06}, {}),
            "update": ("programs", 15.0, {"write": 1.6}, {}),
            "read": ("programs", 5.0, {"find": 4.3}, {}),
            "disk": ("disk", 5.0, {}, {}),
            "find": ("database", 20.4, {"file": 4}, {}),
            "write": ("database", 30.6, {"file": 6}, {}),
            "file": ("files", 5.0, {}, {}),
        },
    )


CHAINS = [[0.1, 0.2, 0.05, 0.15], [0.05, 0.02, 0.2, 0.1], [0.3, 0.1, 0.15, 0.05], [0.02, 0.08, 0.06, 0.2], [0.12] * 4]
SPEEDS = [1.0, 1.8, 2.4, 2.8] + [3.0] * 296
PATIENCE = lambda t: np.exp(-2 * t) * (1 + 2 * t)

row("mva-20x10000", lambda: mva([[0.01 * (1 + k % 7)] for k in range(20)], [10000], [1.0]))
row("mva-4x12", lambda: mva(CHAINS, [12] * 4, [1.0] * 4), slow=True)
row("mva-4x30", lambda: mva(CHAINS, [30] * 4, [1.0] * 4), slow=True)
row("schweitzer-20x50", schweitzer)
row("linearizer-20x50", linearizer, slow=True)
many = servers(256, 1, 1, most=1000)
row("servers-256", lambda: load_dependent([[0.5], [0.002], [0.0015]], [1000], [1.0], many), slow=True)
row("mmm-100", lambda: number(qsys.qsys_mmk(95.0, 1.0, 100), 95.0))
row("mmmk-100", lambda: (lambda found: ([found["throughput"]], [found["W"]]))(qsys.qsys_mmck(105.0, 1.0, 100, 150)))
row("mmpp-m-1", lambda: phases(MMPP(0.2, 1.4), 0.8, ([1.0], [[-1.0]]), 1))
# With other numbers of servers it often ends in numbers that are none.
row("mmpp-e2-10", lambda: phases(MMPP(3.0, 13.0), 8.0, E2(1.0), 10))
row("ph-ph-5", lambda: phases(renewal(E2(1 / 4.0)), 4.0, balanced(1.0, 4.0), 5))
row("qna-3", built(open_row))
row("jackson", jackson)
row("mixed", mixed)
row("load-dependent", lambda: load_dependent([[0.01], [0.004]], [300], [1.0], [SPEEDS, [1.0] * 300]), slow=True)
row(
    "convolution-3",
    lambda: load_dependent(
        [[0.2, 0.4, 0.6], [0.1, 0.05, 0.05]], [10] * 3, [1.0, 2.0, 3.0], servers(4, 1, most=30)
    ),
    slow=True,
)
row("fork-join-8", lambda: ([0.8], [fj.fj_respt_nt(8, 0.8, 1.0)]))
row("erlang-a", lambda: impatient(qsys.qsys_erlanga(105.0, 1.0, 0.5, 100)))
row("mmm-g-20", lambda: impatient(qsys.qsys_mgisrgi_whitt(22.0, 1.0, 20, np.inf, {"ccdf": PATIENCE})))
row("priorities", priorities)
row("dps", weights)
row("srpt", lambda: ([0.8], qsys.qsys_mg1_srpt(np.array([0.8]), np.array([1.0]), np.array([1.0]))[0]))
row("polling", lambda: polled(polling.polling_qsys_exhaustive))
row("polling-limited", lambda: polled(polling.polling_qsys_1limited))
row("retrial", retrials)
row("layered-tiers", built(tiers))
row("layered-web", built(web))
