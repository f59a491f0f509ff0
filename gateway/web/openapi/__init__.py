"""The OpenAPI document, generated from the routes, and the page that shows it."""
