"""Agent programs as worlds: any program that asks a model over HTTP is played, judged, trained."""
