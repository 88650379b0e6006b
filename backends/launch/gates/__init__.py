"""The validation gates of a launch, one module per gate. `runner.GATES` defines their order."""
