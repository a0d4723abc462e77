def compare_duets(*a):
    raise SystemExit(3)
