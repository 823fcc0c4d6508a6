"""The first hour of an app on Azure: ten steps, in the order of harm, and their answers in one file."""
