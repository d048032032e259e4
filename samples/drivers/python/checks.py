"""Counts checks, and says which one failed."""

import sys


class Checks:
    def __init__(self, driver):
        self.driver = driver
        self.passed = 0
        self.failed = 0

    def equal(self, name, got, expected):
        if got == expected:
            self.passed += 1
        else:
            self.failed += 1
            print(f"driver: {self.driver}: {name}: expected {expected!r}, got {got!r}", flush=True)

    def end(self):
        if self.failed:
            print(f"driver: {self.driver} failed {self.failed} of {self.passed + self.failed} checks")
            sys.exit(1)
        print(f"driver: {self.driver} passed {self.passed} checks")
