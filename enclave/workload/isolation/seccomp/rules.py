"""The text of a filter, and its compilation.

One rule a line, first match of a system call wins, what no rule names gets
the default:

    let NAME = VALUE
    include FILE
    allow    NAME... [when CONDITION; CONDITION...]
    errno E  NAME... [when ...]
    tripwire NAME... [when ...]
    default errno E

A condition is `aN == V`, `aN in V V...`, `aN & MASK == V` (low 32 bits, which
is what the kernel reads of an int) or `aN null` (all 64 bits).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.seccomp import program as bpf

ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT: Final = 0x40000000
_CONDITION: Final = re.compile(
    r"a(?P<index>[0-5])(?: & (?P<mask>\S+))? (?:(?P<null>null)|== (?P<value>\S+)|in (?P<set>.+))\Z"
)
_PACKAGE: Final = "enclave.workload.isolation.seccomp"


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of an argument: `(argument & mask)` is one of `values`."""

    index: int
    mask: int
    values: tuple[int, ...]
    null: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """An action for a system call, under conditions that must all hold."""

    verdict: int
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter: rules by system call name, in the order of the text."""

    rules: dict[str, tuple[Rule, ...]]
    default: int


@cache
def syscall_table() -> dict[str, tuple[int | None, int | None]]:
    """Name to (x86-64 number, aarch64 number)."""
    table: dict[str, tuple[int | None, int | None]] = {}
    for line in _lines("syscalls.txt"):
        name, *numbers = line.split()
        first, second = (None if n == "-" else int(n) for n in numbers)
        table[name] = (first, second)
    return table


def syscall_name(number: int, machine: str) -> str:
    """The name of a system call for a report; `syscall_N` when unknown."""
    column = 0 if machine == "x86_64" else 1
    for name, numbers in syscall_table().items():
        if numbers[column] == number:
            return name
    return f"syscall_{number}"


def parse_filter(name: str) -> Filter:
    """Read the filter text `filters/<name>.txt`."""
    constants: dict[str, int] = {}
    rules: dict[str, list[Rule]] = {}
    defaults: list[int] = []
    for line in _with_includes(name):
        words = line.split()
        if words[0] == "let":
            constants[words[1]] = _number(words[3], constants)
        elif words[0] == "default":
            defaults.append(_errno(words[2]))
        else:
            _add_rule(line, constants, rules)
    if len(defaults) != 1:
        raise _malformed(name, "exactly one default")
    return Filter({key: tuple(value) for key, value in rules.items()}, defaults[0])


def compile_filter(parsed: Filter, machine: str) -> bytes:
    """The filter as BPF for one machine. Other architectures and x32 are tripwires."""
    if machine not in ARCHITECTURES:
        raise IsolationRefused("machine_unsupported", expected="x86_64 or aarch64", got=machine)
    column = 0 if machine == "x86_64" else 1
    code = bpf.Program()
    native = code.fresh_label()
    code.load(bpf.OFFSET_ARCHITECTURE)
    code.jump_equal(ARCHITECTURES[machine], yes=native)
    code.finish(bpf.RET_TRIPWIRE)
    code.place(native)
    code.load(bpf.OFFSET_NUMBER)
    if machine == "x86_64":
        normal = code.fresh_label()
        code.jump_at_least(_X32_BIT, no=normal)
        code.finish(bpf.RET_TRIPWIRE)
        code.place(normal)
    for name, rules in parsed.rules.items():
        number = syscall_table()[name][column]
        if number is not None:
            _compile_rules(code, number, rules, parsed.default)
    code.finish(parsed.default)
    return code.assemble()


def _compile_rules(code: bpf.Program, number: int, rules: tuple[Rule, ...], default: int) -> None:
    following = code.fresh_label()
    code.jump_equal(number, no=following)
    for rule in rules:
        missed = code.fresh_label()
        for condition in rule.conditions:
            _compile_condition(code, condition, missed)
        code.finish(rule.verdict)
        code.place(missed)
        if not rule.conditions:
            break
    else:
        code.finish(default)
    code.place(following)


def _compile_condition(code: bpf.Program, condition: Condition, missed: str) -> None:
    if condition.null:
        code.load(bpf.argument_offset(condition.index, high=True))
        code.jump_equal(0, no=missed)
    code.load(bpf.argument_offset(condition.index))
    if condition.mask != 0xFFFFFFFF:
        code.mask(condition.mask)
    held = code.fresh_label()
    for value in condition.values[:-1]:
        code.jump_equal(value, yes=held)
    code.jump_equal(condition.values[-1], no=missed)
    code.place(held)


def _add_rule(line: str, constants: dict[str, int], rules: dict[str, list[Rule]]) -> None:
    head, _, tail = line.partition(" when ")
    words = head.split()
    action = words.pop(0)
    if action == "allow":
        verdict = bpf.RET_ALLOW
    elif action == "tripwire":
        verdict = bpf.RET_TRIPWIRE
    elif action == "errno":
        verdict = _errno(words.pop(0))
    else:
        raise _malformed(line, "allow, errno or tripwire")
    conditions = tuple(_condition(part.strip(), constants) for part in tail.split(";") if part)
    if not words or (" when " in line and not conditions):
        raise _malformed(line, "names, and conditions after when")
    for name in words:
        if name not in syscall_table():
            raise _malformed(line, f"a known system call, not {name}")
        earlier = rules.setdefault(name, [])
        if earlier and not earlier[-1].conditions:
            raise _malformed(line, f"no rule for {name} after an unconditional one")
        earlier.append(Rule(verdict, conditions))


def _condition(text: str, constants: dict[str, int]) -> Condition:
    match = _CONDITION.match(text)
    if match is None or (match["null"] and match["mask"]):
        raise _malformed(text, "a condition")
    mask = _number(match["mask"], constants) if match["mask"] else 0xFFFFFFFF
    if match["null"]:
        values: tuple[int, ...] = (0,)
    elif match["value"]:
        values = (_number(match["value"], constants),)
    else:
        values = tuple(_number(word, constants) for word in match["set"].split())
    return Condition(int(match["index"]), mask, values, bool(match["null"]))


def _number(text: str, constants: dict[str, int]) -> int:
    total = 0
    for part in text.split("|"):
        try:
            total |= constants[part] if part in constants else int(part, 0)
        except ValueError:
            raise _malformed(text, "a number or a let name") from None
    if not 0 <= total <= 0xFFFFFFFF:
        raise _malformed(text, "32 bits")
    return total


def _errno(name: str) -> int:
    number = getattr(errno, name, None)
    if not isinstance(number, int):
        raise _malformed(name, "an errno name")
    return bpf.RET_ERRNO | number


def _with_includes(name: str) -> Iterator[str]:
    for line in _lines(f"filters/{name}.txt"):
        if line.startswith("include "):
            yield from _with_includes(line.split()[1])
        else:
            yield line


def _lines(path: str) -> list[str]:
    text = resources.files(_PACKAGE).joinpath(path).read_text("ascii")
    stripped = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in stripped if line]


def _malformed(where: str, expected: str) -> IsolationRefused:
    return IsolationRefused("seccomp_filter", expected=expected, got=where[:80])
