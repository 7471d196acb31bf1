"""ImageNet: from the official archives to shards that training reads."""
