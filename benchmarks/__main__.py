"""``make bench``."""

from benchmarks.throughput import main

if __name__ == "__main__":
    main()
