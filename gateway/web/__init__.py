"""HTTP application: routes, connections and their limits, request log, errors and the OpenAPI document."""
