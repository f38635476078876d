(* The union of two filters: what either of them admits may be played, at the sum of their deltas.
   docs/notes/filters.md, "Never worse than adding up" *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Value.
Variable R : realFieldType.
Variables (C : Type) (cls : C -> class R) (D : Type) (nb : D -> D -> Prop).
Variables (T : Type) (may : T -> C -> Prop) (next : T -> C -> T).
Local Notation analyst := (@analyst R C cls D nb T may next).

(* The sum of [p P - q Q]_+ over all transcripts that end in a state where x holds. *)
Definition positive (p q : R) : R := Num.max (p - q) 0.
Fixpoint value_in (x : pred T) s (A : analyst s) d d' (p q : R) : R :=
  match A with
  | Stop t => if x t then positive p q else 0
  | Toss _ _ w k => \sum_i value_in x (k i) d d' (p * w i) (q * w i)
  | Ask _ _ _ M _ _ k => \sum_i value_in x (k i) d d' (p * M d i) (q * M d' i)
  end.
Definition value := value_in predT.

Lemma positive_ge0 p q : 0 <= positive p q.
Proof. by rewrite /positive le_maxr lexx orbT. Qed.

Lemma value_ge0 x s (A : analyst s) d d' p q : 0 <= value_in x A d d' p q.
Proof.
elim: A p q => {s} [s|s n w k IH|s c n M m h k IH] p q /=; last 2 first.
- by apply: sumr_ge0.
- by apply: sumr_ge0.
by case: ifP => _ //; apply: positive_ge0.
Qed.

Lemma Pr_ext s (A : analyst s) d S S' : S =1 S' -> Pr A d S = Pr A d S'.
Proof.
elim: A S S' => {s} [s|s n w k IH|s c n M m h k IH] S S' e /=; first by rewrite e.
- by apply: eq_bigr => i _; congr (_ * _); apply: IH => t; apply: e.
by apply: eq_bigr => i _; congr (_ * _); apply: IH => t; apply: e.
Qed.

(* No event is worth more than the value, and one is worth as much. *)
Lemma value_bounds s (A : analyst s) d d' S p q : 0 <= p -> 0 <= q ->
  p * Pr A d S - q * Pr A d' S <= value A d d' p q.
Proof.
rewrite /value; elim: A S p q => {s} [s|s n w k IH|s c n M m h k IH] S p q p0 q0 /=.
- by case: (S [::]); rewrite ?mulr1 ?mulr0 ?subrr /positive le_maxr lexx ?orbT.
- rewrite !mulr_sumr -sumrB; apply: ler_sum => i _.
  by rewrite !mulrA; apply: IH; rewrite mulr_ge0 ?pr_ge0.
rewrite !mulr_sumr -sumrB; apply: ler_sum => i _.
by rewrite !mulrA; apply: IH; rewrite mulr_ge0 ?pr_ge0.
Qed.

Fixpoint best s (A : analyst s) d d' (p q : R) (t : seq nat) : bool :=
  match A with
  | Stop _ => q < p
  | Toss _ _ w k => if t is j :: r then
      [exists i, (nat_of_ord i == j) && best (k i) d d' (p * w i) (q * w i) r] else false
  | Ask _ _ _ M _ _ k => if t is j :: r then
      [exists i, (nat_of_ord i == j) && best (k i) d d' (p * M d i) (q * M d' i) r] else false
  end.

Lemma exists_ord n (i : 'I_n) (S : 'I_n -> bool) :
  [exists j : 'I_n, (nat_of_ord j == nat_of_ord i) && S j] = S i.
Proof.
apply/existsP/idP => [[j /andP[/eqP ji]]|Si]; last by exists i; rewrite eqxx.
by rewrite (ord_inj ji).
Qed.

Lemma value_attained s (A : analyst s) d d' p q :
  value A d d' p q = p * Pr A d (best A d d' p q) - q * Pr A d' (best A d d' p q).
Proof.
rewrite /value; elim: A p q => {s} [s|s n w k IH|s c n M m h k IH] p q /=.
- rewrite /positive; case: ltrP => pq; rewrite ?mulr1 ?mulr0 ?subrr.
    by apply/max_idPl; rewrite subr_ge0 ltW.
  by apply/max_idPr; rewrite subr_le0.
- rewrite !mulr_sumr -sumrB; apply: eq_bigr => i _; rewrite IH !mulrA.
  by congr (_ * _ - _ * _); apply: Pr_ext => t; rewrite exists_ord.
rewrite !mulr_sumr -sumrB; apply: eq_bigr => i _; rewrite IH !mulrA.
by congr (_ * _ - _ * _); apply: Pr_ext => t; rewrite exists_ord.
Qed.
End Value.

Section Union.
Variable R : realFieldType.
Variables (C : Type) (cls : C -> class R) (D : Type) (nb : D -> D -> Prop).

(* A filter is a set of histories of charges, closed under leaving out the last one. *)
Definition history := seq C.
Definition admits (x : pred history) (h : history) (c : C) : Prop := x (rcons h c).
Definition extended (h : history) (c : C) := rcons h c.
Definition prefix_closed (x : pred history) := forall h c, x (rcons h c) -> x h.
Local Notation play x := (@analyst R C cls D nb history (admits x) extended).

(* The play that stops before the first charge that leaves x. *)
Fixpoint cut (x y : pred history) h (A : play y h) : play x h :=
  match A with
  | Stop s => Stop cls nb (admits x) extended s
  | Toss _ _ w k => Toss w (fun i => cut x (k i))
  | Ask s c n M _ hc k =>
      match Bool.bool_dec (x (rcons s c)) true with
      | left H => Ask (s := s) H hc (fun i => cut x (k i))
      | right _ => Stop cls nb (admits x) extended s
      end
  end.

Lemma value_outside (x y : pred history) h (A : play y h) d d' p q :
  prefix_closed x -> ~~ x h -> value_in x A d d' p q = 0.
Proof.
move=> xc; elim: A p q => {h} [h|h n w k IH|h c n M m hc k IH] p q nx /=.
- by rewrite (negbTE nx).
- by apply: big1 => i _; apply: IH.
apply: big1 => i _; apply: IH; apply: contra nx; exact: xc.
Qed.

Lemma value_cut (x y : pred history) h (A : play y h) d d' p q :
  prefix_closed x -> value_in x A d d' p q <= value (cut x A) d d' p q.
Proof.
rewrite /value => xc; elim: A p q => {h} [h|h n w k IH|h c n M m hc k IH] p q /=.
- by case: ifP => _ //; apply: positive_ge0.
- by apply: ler_sum => i _; apply: IH.
case: Bool.bool_dec => H /=; first by apply: ler_sum => i _; apply: IH.
rewrite big1 ?positive_ge0 // => i _.
by apply: value_outside => //; apply/negP.
Qed.

Variables (a b : pred history).
Hypothesis a_closed : prefix_closed a.
Hypothesis b_closed : prefix_closed b.
Definition either : pred history := fun h => a h || b h.

Lemma value_split h (A : play either h) d d' p q : either h ->
  value A d d' p q <= value_in a A d d' p q + value_in b A d d' p q.
Proof.
rewrite /value; elim: A p q => {h} [h|h n w k IH|h c n M m hc k IH] p q eh /=.
- case/orP: eh => -> ; last by rewrite ler_addr; case: ifP => _ //; apply: positive_ge0.
  by rewrite ler_addl; case: ifP => _ //; apply: positive_ge0.
- by rewrite -big_split; apply: ler_sum => i _; apply: IH.
by rewrite -big_split; apply: ler_sum => i _; apply: IH.
Qed.

(* Every play inside a, or inside b, is within its delta at u = e^epsilon: *)
Definition within (x : pred history) (u delta : R) := forall (A : play x [::]) d d' S,
  nb d d' -> Pr A d S <= u * Pr A d' S + delta.

Theorem union_of_filters u da db : 0 <= u -> either [::] ->
  within a u da -> within b u db -> within either u (da + db).
Proof.
move=> u0 e0 Ha Hb A d d' S dd'.
have inside x dx (x_closed : prefix_closed x) (Hx : within x u dx) :
  value_in x A d d' 1 u <= dx.
  apply: (le_trans (value_cut _ _ _ _ _ x_closed)).
  by rewrite value_attained mul1r ler_subl_addl; apply: Hx.
rewrite -ler_subl_addl -[Pr A d S]mul1r.
apply: (le_trans (value_bounds A d d' S ler01 u0)).
apply: (le_trans (value_split A d d' 1 u e0)).
by apply: ler_add; apply: inside.
Qed.
End Union.
