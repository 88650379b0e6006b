"""Godot projects: scenes, scripts, resources and settings, by a connected editor, a headless engine, or their files."""
