"""Files for training clients: the stand-in Gym folder (`gym_dir`), the attach file (`attachment`)."""
