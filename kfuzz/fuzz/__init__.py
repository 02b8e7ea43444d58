"""Fuzz targets, the campaign runner, triage; the only folder that imports atheris."""
