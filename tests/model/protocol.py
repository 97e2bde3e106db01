"""The protocol's model, from the command line.

    python -m tests.model.protocol random [-n 20000] [-s SCENARIO]   random schedules of the protocol
    python -m tests.model.protocol explore [-s SCENARIO]             every schedule of the small scenarios
    python -m tests.model.protocol mutants [-n 20000]                each mutant: killed, and by what; or it survives
    python -m tests.model.protocol show MUTANT                       a short schedule that kills a mutant, in words

How it is built: `items` (what is stored), `rules` (the guarded writes), `writers` and `keepers` (the actors), `world`
(the scheduler and its faults), `truth` (what must hold), `scenarios` (who acts together; the mutants), `explore`.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.model.explore import explore, hunt, one, story
from tests.model.scenarios import MUTANTS, SCENARIOS, SMALL, SURVIVORS


def random_schedules(scenario: str, n: int) -> str:
    """What n random schedules show."""
    found: Counter[str] = Counter()
    for seed in range(n):
        if (why := one(seed, scenario).why) is not None:
            found[why] += 1
    return f"{scenario:9} {n} schedules: {dict(found) or 'nothing found'}"


def every_schedule(scenario: str, seconds: float) -> str:
    """What every schedule with one fault of each kind shows."""
    found = explore(scenario, seconds=seconds)
    how = "complete" if found.complete else "cut off"
    told = story(scenario, (), list(found.moves), found.why) if found.why else "nothing found"
    return f"{scenario:9} {found.states} states, {how}: {told}"


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["random", "explore", "mutants", "show"])
    parser.add_argument("mutant", nargs="?")
    parser.add_argument("-n", type=int, default=20000)
    parser.add_argument("-s", "--scenario")
    parser.add_argument("--seconds", type=float, default=50)
    given = parser.parse_args()
    every = {**MUTANTS, **SURVIVORS}
    if given.what == "random":
        for scenario in [given.scenario] if given.scenario else [*SCENARIOS, *SMALL]:
            print(random_schedules(scenario, given.n), flush=True)
    elif given.what == "explore":
        for scenario in [given.scenario] if given.scenario else SMALL:
            print(every_schedule(scenario, given.seconds), flush=True)
    elif given.what == "show":
        print(hunt(given.mutant, every[given.mutant].scenarios.split(), given.n)[1])
    else:
        for mutant, (scenarios, _, _) in every.items():
            harm, _ = hunt(mutant, scenarios.split(), given.n)
            print(f"{mutant:28} {', '.join(harm) or 'survives'}", flush=True)


if __name__ == "__main__":
    main()
