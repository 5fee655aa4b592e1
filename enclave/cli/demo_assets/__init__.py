"""What the demonstration evaluates: a small real model, two suites and one eval bundle."""
