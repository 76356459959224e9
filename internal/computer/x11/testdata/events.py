"""Fills the screen and prints a line for each event: what, which, where, modifiers."""
import tkinter

root = tkinter.Tk()
root.overrideredirect(True)
root.geometry("%dx%d+0+0" % (root.winfo_screenwidth(), root.winfo_screenheight()))
root.configure(background="#336699")


def tell(what, name):
    def heard(event):
        modifiers = "".join(c for bit, c in ((1, "S"), (4, "C"), (8, "A")) if event.state & bit)
        print(what, getattr(event, name), event.x_root, event.y_root, modifiers or "-", flush=True)

    return heard


root.bind("<ButtonPress>", tell("press", "num"))
root.bind("<ButtonRelease>", tell("release", "num"))
root.bind("<KeyPress>", tell("key", "keysym"))
root.update()
root.focus_force()
root.update()
print("ready", flush=True)
root.mainloop()
