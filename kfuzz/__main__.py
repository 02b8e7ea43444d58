"""The command ``kfuzz``, also as ``python -m kfuzz``."""

import sys


def main() -> None:
    """Run it. Ctrl-C is one sentence while it is still imported, too."""
    try:
        from kfuzz.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("kfuzz: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
