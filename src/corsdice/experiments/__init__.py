"""One module for each figure or table: `run(config)` computes it and writes it into `config.out`."""
