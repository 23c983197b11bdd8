"""Tests of the server side."""
