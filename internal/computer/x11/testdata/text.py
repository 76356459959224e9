"""Fills the screen with coloured text and prints a line when it shows."""
import random
import tkinter

WORDS = "the quick brown fox jumps over lazy dog func return error context package string byte 0x3f2a { } ( ) == != && || lorem ipsum dolor".split()

root = tkinter.Tk()
root.overrideredirect(True)
root.geometry("1280x800+0+0")
text = tkinter.Text(root, font=("TkFixedFont", 9), width=400, height=200)
text.pack(fill="both", expand=True)
random.seed(1)
for _ in range(90):
    text.insert("end", " ".join(random.choice(WORDS) for _ in range(60)) + "\n")
for i in range(1, 90, 3):
    text.tag_add("c%d" % i, "%d.0" % i, "%d.end" % i)
    text.tag_config("c%d" % i, foreground="#%06x" % random.randrange(0xFFFFFF))
root.update()
root.after(200, lambda: print("shown", flush=True))
root.mainloop()
