"""Print the tests that mirror the files that differ from `main`, for `make test-changed`.

`tests/` mirrors the packages of `src/`. What else a change breaks, `make test` finds."""

import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MUTANTS = yaml.safe_load((ROOT / "tests" / "mutation" / "mutants.yaml").read_text())
FOLDERS = {  # beside the packages
    "conf": ["tests/runs"],
    "docs": ["tests/documents"],
    "results": ["tests/claims", "tests/test_golden.py", "tests/documents/test_readme.py"],
    "scripts": ["tests/cli"],
    "studies": ["tests/studies"],
    "train.py": ["tests/cli/test_train.py"],
}


def mirrors_of(name: str) -> list[str]:
    """Return the tests of a file, below the root of the project."""
    path = Path(name)
    top, folder = path.parts[0], path.parent.as_posix()
    is_test = path.name.startswith("test_")
    if name.startswith("src/rectifiers/"):
        mirrors = [f"tests/{path.parts[2]}"]
        mirrors += [f"tests/{test.name}" for test in ROOT.glob(f"tests/test_{path.stem}*.py")]
        entry = MUTANTS.get(name.removeprefix("src/rectifiers/"), {"tests": []})
        mirrors += [f"tests/{test}" for test in entry["tests"]]
    elif top == "tests":
        is_shared = folder in ("tests", "tests/support") and not is_test  # by all tests
        mirrors = [] if is_shared else [name if is_test else folder]
    else:
        mirrors = FOLDERS.get(top, ["tests/documents"] if path.suffix == ".md" else [])
    return [test for test in mirrors if (ROOT / test.partition("::")[0]).exists()]


def changed_files() -> list[str]:
    """Return the files that differ from where `main` was left, those that git ignores apart."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: git: {done.stderr.strip()}; make test-changed compares with main")
        return done.stdout.splitlines()

    (base,) = git("merge-base", "main", "HEAD")
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def main() -> None:
    tests = {"tests/test_architecture.py"}
    for name in sorted(changed_files()):
        tests |= set(found := mirrors_of(name))
        print(f"{name}: {' '.join(found) or 'no test mirrors it'}", file=sys.stderr)
    print(*sorted(tests))


if __name__ == "__main__":
    main()
