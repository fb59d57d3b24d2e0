"""A worker that can be told to fail in every way; the test puts its folder on the path."""

import os
import time
from pathlib import Path


def work(job, on_event):
    if "log" in job:
        with Path(job["log"]).open("a") as stream:
            stream.write(f"{job['keys'][0]} {os.getpid()}\n")
    on_event({"key": job["keys"][0]})
    time.sleep(job.get("sleep", 0))
    if job.get("kill"):
        os._exit(9)
    if job.get("kill_once") and not Path(job["kill_once"]).exists():
        Path(job["kill_once"]).touch()
        os._exit(9)
    return {key: "told to" for key in job["keys"] if job.get("fail")}
