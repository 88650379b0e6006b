"""Parsing and span-based editing of Godot's text files: unchanged parts stay identical byte for byte."""
