"""Copy engines: each moves the records of one range from the source to the target."""
