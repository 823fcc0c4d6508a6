"""Body formats, read strictly: content that is not of its format raises MessageRejected."""
