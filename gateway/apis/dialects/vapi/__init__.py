"""The API that Vapi asks a custom voice over."""
