"""Actions of a person on records that were set aside: look at them, copy them again, or give them up."""
