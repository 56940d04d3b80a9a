"""A control group of the processor, version 1 or 2, for the scripts that give a program a share of it."""

import os
import pathlib
import time

PERIOD_US = 10_000


class ControlGroup:
    """May use so many cores. Made as root, or in a delegated group; `OSError` where there is none."""

    def __init__(self, name, cores):
        quota = str(int(PERIOD_US * cores))
        for root, files in (("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota}),
                            ("/sys/fs/cgroup", {"cpu.max": f"{quota} {PERIOD_US}"})):
            self.folder = pathlib.Path(root) / f"kendall-{name}-{os.getpid()}"
            try:
                self.folder.mkdir()
                for file, value in files.items():
                    # Opened for writing without creating: a plain folder is no control group.
                    with open(self.folder / file, "r+") as handle:
                        handle.write(value)
                return
            except OSError as error:
                refused = error
                self.close()
        raise refused

    def enter(self):
        """For `preexec_fn`."""
        self.take(os.getpid())

    def take(self, process_id):
        """With all threads that it has."""
        (self.folder / "cgroup.procs").write_text(str(process_id))

    def close(self):
        """Processes that have ended take a moment to leave it."""
        for _ in range(100):
            try:
                return self.folder.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.02)
        return None
