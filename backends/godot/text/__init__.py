"""Godot's text files, edited by span: what is not touched stays byte for byte."""
