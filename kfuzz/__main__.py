"""``python -m kfuzz`` runs the command ``kfuzz``."""

from kfuzz.cli.main import main

if __name__ == "__main__":
    main()
