"""Texts in scripts that an English voice cannot read."""

UNREADABLE_TEXTS = {
    "Chinese": "你好，世界。今天天气很好。",
    "Japanese": "こんにちは、世界。カタカナ",
    "Korean": "안녕하세요, 여러분.",
    "Hindi": "नमस्ते दुनिया। कैसे हो?",
    "Hebrew": "שלום עולם.",
    "Thai": "สวัสดีครับ",
    "Arabic": "مرحبا، كيف حالك؟",
}
