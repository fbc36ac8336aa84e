"""The screen: panes and screens over Textual, pure drawing in `render`."""
