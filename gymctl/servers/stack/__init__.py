"""What every server stands on: config, client, routes, cookies, errors, idempotency, listening."""
