"""HTTP application: routes, back-pressure, request log, WebSocket connections and streamed responses."""
