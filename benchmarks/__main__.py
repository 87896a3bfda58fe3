"""``make bench``: the speed of copying, then whole runs."""

from benchmarks import throughput, whole_runs

if __name__ == "__main__":
    throughput.main()
    whole_runs.main()
