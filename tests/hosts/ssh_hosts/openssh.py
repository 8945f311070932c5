"""Common parts of the tests of the OpenSSH carrier."""

import asyncio
import subprocess

__all__ = ["Person", "by_password", "gone", "masters"]


class Person:
    """A user with prepared answers, each a text or a function that returns one."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def ask(self, prompt):
        self.asked.append(prompt)
        if not prompt.questions:
            return []
        assert self.answers, f"nobody knows what to say to {prompt}"
        answer = self.answers.pop(0)
        return answer if answer is None else [answer() if callable(answer) else answer]


def by_password(config, host, *lines):
    return config(host, "PubkeyAuthentication no", *lines)


def masters(folder):
    """Return the processes that have a control socket in a folder."""
    found = subprocess.run(["pgrep", "-f", f"ssh .*-S {folder}/"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


async def gone(folder):
    async with asyncio.timeout(60):
        while masters(folder):
            await asyncio.sleep(0.05)
